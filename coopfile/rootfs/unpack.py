"""The layers of an image into one directory: later ones over earlier ones, nothing outside it.

What the layers' archives mean is in ``apply``, what is kept of owners and modes in ``owners``.
"""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack, contextmanager

from coopfile.errors import CoopError
from coopfile.record import Record
from coopfile.rootfs.apply import Image
from coopfile.rootfs.damage import DamagedError, shown
from coopfile.rootfs.layers import Layer, Limits, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coopfile.rootfs.owners import Owners

    Progress = Callable[[int, int, int], None]
    """Told the layer, from 0, how much of its blob has been read, and the blob's size, in bytes."""


class Unpacked(Record):
    """What was unpacked: ``bytes`` of uncompressed archives, ``entries`` in them, and what was left out.

    ``devices``, ``attributes`` (extended ones), ``owners`` and ``set_ids`` count what is
    not as the archive has it.
    """

    bytes: int
    entries: int
    devices: int
    attributes: int
    owners: int
    set_ids: int


def unpack(
    layers: Sequence[Layer],
    root: str,
    owners: Owners,
    limits: Limits | None = None,
    progress: Progress | None = None,
    wait: Callable[[Layer], None] | None = None,
) -> Unpacked:
    """Unpack layers, the lowest first, into ``root``, which is made, or is an empty directory.

    ``progress`` is called in this thread. ``wait``, if given, is called in another one
    before a layer's blob is opened, and may wait until it is there; it is not waited for
    once something else has failed. Nothing is synced to disk. Raises CoopError; what is in ``root``
    then is of no use, and has to be removed.
    """
    limits = limits or Limits()
    _prepare(root)
    with ExitStack() as stack:
        image = Image(root, owners, limits)
        stack.callback(image.close)
        ahead: list[Stream] = []
        total = 0
        for index, layer in enumerate(layers):
            with _explained(index, layer, image, root):
                for following in layers[index + len(ahead) : index + 2]:  # one more inflates meanwhile
                    ahead.append(Stream(following, limits, wait))
                    stack.callback(ahead[-1].close)
                stream = ahead.pop(0)

                def chunks(stream: Stream = stream, index: int = index) -> Iterator[bytes]:
                    nonlocal total
                    for chunk in stream:
                        total += len(chunk)
                        if total > limits.bytes:
                            raise DamagedError(f"the image has more than {limits.bytes} bytes")
                        if progress is not None:
                            progress(index, stream.position, stream.size)
                        yield chunk

                image.apply(index, chunks())
                stream.verify()
                if progress is not None:
                    progress(index, stream.size, stream.size)
        if layers:
            with _explained(len(layers) - 1, layers[-1], image, root):
                image.finish()
        return Unpacked(total, **image.counts)


def _prepare(root: str) -> None:
    """Make the directory, or rid it of what it has inherited and would pass on."""
    try:
        try:
            os.mkdir(root, 0o700)
            os.chmod(root, 0o700)  # whatever the umask takes away
        except FileExistsError:
            pass
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.listdir(descriptor):
                raise CoopError(f"{root} is not empty", "unpack into a new directory")
            for name in ("system.posix_acl_default", "system.posix_acl_access"):
                try:
                    os.removexattr(descriptor, name)
                except OSError as error:
                    if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                        raise
            os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise CoopError(f"{root} cannot be made: {error.strerror}", None) from None


@contextmanager
def _explained(index: int, layer: Layer, image: Image, root: str) -> Iterator[None]:
    """Turn what goes wrong with a layer into a message about it."""
    what = f"layer {index + 1} of the image ({layer.diff_id[:19]})"
    try:
        yield
    except DamagedError as error:
        raise CoopError(
            f"{what} cannot be unpacked: {error}", "the image is damaged or hostile; use another"
        ) from None
    except OSError as error:
        name = shown(image.current) if image.current else error.filename or "its root"
        doing = f"{what} cannot be unpacked: {name}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "free some space, with coop clean for a beginning"
            raise CoopError(f"{doing}, below {root}", remedy) from None
        if error.errno == errno.EINVAL and image.changing_owner:
            raise CoopError(
                f"{doing} (its owner {image.changing_owner} is outside the ranges of ids given to you)",
                "as root: give your user a larger range in /etc/subuid and /etc/subgid",
            ) from None
        raise CoopError(doing, None) from None
