"""Blobs on their way to disk: verified while they stream, resumed when they break, several at once."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, contextmanager

from coopfile.errors import CoopError
from coopfile.rootfs import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import requests

    from coopfile.rootfs.client import Client
    from coopfile.rootfs.model import Descriptor, Source

THREADS = 4
_WORTH = 1 << 20  # bytes: a connection that brought these has not failed in vain
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.ASCII)


class Sink:
    """A new file that takes a blob and knows whether it is the right one so far."""

    def __init__(self, what: str, blob: Descriptor, file: int, tell: Callable[[int], None] | None) -> None:
        self.have = 0
        self.blob = blob
        self.what = what
        self._file = file
        self._tell = tell
        self._algorithm = blob.digest.partition(":")[0]
        self._hash = hashlib.new(self._algorithm)

    def write(self, piece: bytes | memoryview) -> None:
        """Take the next bytes; raises CoopError when they are too many, or the disk is full."""
        self.have += len(piece)
        if self.have > self.blob.size:
            raise documents.wrong_size(self.what, self.blob, self.have)
        self._hash.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._file, view) :]
        if self._tell is not None:
            self._tell(len(piece))

    def restart(self) -> None:
        """Forget everything."""
        if self._tell is not None and self.have:
            self._tell(-self.have)
        self.have = 0
        self._hash = hashlib.new(self._algorithm)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)

    def finish(self) -> None:
        """Raise CoopError unless this is the blob, all of it."""
        if self.have != self.blob.size:
            raise documents.wrong_size(self.what, self.blob, self.have)
        found = f"{self._algorithm}:{self._hash.hexdigest()}"
        if found != self.blob.digest:
            raise documents.wrong_digest(self.what, self.blob.digest, found)


@contextmanager
def into(what: str, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> Iterator[Sink]:
    """Give a sink whose file gets its name when the block ends and the blob is whole and right.

    Until then, and for ever if the process is killed, it is called ``PATH.<16 digits>.part``.
    """
    temporary = f"{path}.{secrets.token_hex(8)}.part"
    file = -1
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        sink = Sink(what, blob, file, tell)
        yield sink
        sink.finish()
        os.rename(temporary, path)
    except BaseException as error:
        if file >= 0:
            os.unlink(temporary)
        if isinstance(error, OSError):
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            remedy = "free some space, with coop clean for a beginning" if full else "may you write there?"
            raise CoopError(f"{what} cannot be stored: {error.strerror}: {path}", remedy) from None
        raise
    finally:
        if file >= 0:
            os.close(file)


def download(client: Client, blob: Descriptor, path: str, tell: Callable[[int], None] | None = None) -> None:
    """Download a blob of a client's repository to a path, verified. Raises CoopError.

    A connection that breaks is resumed where it broke.
    """
    from coopfile.rootfs.wire import PassingError

    patience = client.patience(client.limits.blob)
    with into(client.what, blob, path, tell) as sink:
        while True:
            before = sink.have
            try:
                with closing(client.open_blob(blob.digest, sink.have)) as response:
                    whole = _position(response, sink)
                    for piece in client.pieces(response):
                        sink.write(piece)
                        patience.check(client.what)
                if sink.have == blob.size:
                    return
                if whole:
                    raise documents.wrong_size(client.what, blob, sink.have)
                message = (
                    f"{client.what}: the download of a layer broke off at {sink.have} of {blob.size} bytes"
                )
                raise PassingError(message, "try again", client.limits.tries)
            except PassingError as error:
                if sink.have - before >= _WORTH:
                    patience.progressed()
                patience.wait(error)


def _position(response: requests.Response, sink: Sink) -> bool:
    """Make the sink ready for an answer; tell whether the answer's end is surely the blob's.

    Raises CoopError when the answer's size shows that it cannot be the blob.
    """
    from coopfile.rootfs.wire import content_length

    size = sink.blob.size
    if response.status_code == 206:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if match is None or int(match[1]) != sink.have or not sink.have:
            raise CoopError(f"{sink.what}: the registry sent another part of a layer than asked for", None)
        if match[3] not in ("*", str(size)):
            raise documents.wrong_size(sink.what, sink.blob, int(match[3]))
        return False
    if sink.have:
        sink.restart()
    length = content_length(response)
    if length not in (None, size):
        raise documents.wrong_size(sink.what, sink.blob, length)
    return "chunked" in response.headers.get("Transfer-Encoding", "").lower()


def blob_path(directory: str, digest: str) -> str:
    """Return where a blob is kept in a directory."""
    return os.path.join(directory, digest.replace(":", "-"))


def fetch_all(
    source: Source,
    blobs: Sequence[Descriptor],
    directory: str,
    progress: Callable[[Descriptor, int], None] | None = None,
    ready: Callable[[Descriptor, str], None] | None = None,
) -> dict[str, str]:
    """Fetch blobs into a directory, four at a time and each once; return the path of every digest.

    ``progress`` hears how many bytes of a blob are new (fewer than none when it starts
    again), ``ready`` of each blob that is whole, with its path; neither is called
    twice at once. The first error closes the source, which ends all the other
    transfers, and is raised when they have ended; so it is with KeyboardInterrupt.
    """
    sizes: dict[str, Descriptor] = {}
    for blob in blobs:
        if sizes.setdefault(blob.digest, blob).size != blob.size:
            raise documents.wrong_size("the image", blob, sizes[blob.digest].size)
    paths = {digest: blob_path(directory, digest) for digest in sizes}
    lock = threading.Lock()

    def fetch(blob: Descriptor) -> None:
        def tell(count: int) -> None:
            if progress is not None:
                with lock:
                    progress(blob, count)

        source.fetch(blob, paths[blob.digest], tell)
        if ready is not None:
            with lock:
                ready(blob, paths[blob.digest])

    with ThreadPoolExecutor(THREADS, "fetch") as pool:
        try:
            for future in as_completed([pool.submit(fetch, blob) for blob in sizes.values()]):
                future.result()
        except BaseException:
            source.close()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return paths
