"""Finding what ``files.hide`` names in the workspace, at the moment of the launch."""

from __future__ import annotations

import os

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_WILD = frozenset("*?[")


def expand(root: str, globs: Sequence[str]) -> tuple[str, ...]:
    """Return the existing paths below ``root``, relative to it, that the globs name.

    ``**`` stands for any number of directories, ``*`` and ``?`` do not match a slash.
    A match that is a link stands for what it leads to inside the root. Nothing below
    a match is looked at: the whole of it is hidden. So is a directory that cannot be
    looked into: the sandbox may have locked it in an earlier run, to open it in this one.
    """
    plain = [glob for glob in globs if not _WILD.intersection(glob)]
    wild = [glob for glob in globs if _WILD.intersection(glob)]
    found = {path for glob in plain for path in _existing(root, glob)}
    if wild:
        from coopfile.plan.globs import compile_globs

        matches = compile_globs(wild)
        found.update(path for path in _walk(root, "", matches))
    return tuple(sorted({real for path in found for real in _behind(root, path)}))


def _existing(root: str, path: str) -> Iterator[str]:
    """Yield a path if it exists, or the directory on the way to it that cannot be searched."""
    walked = ""
    for name in path.split("/"):
        above, walked = walked, f"{walked}/{name}" if walked else name
        try:
            os.lstat(f"{root}/{walked}")
        except PermissionError:
            yield above or walked
            return
        except OSError:
            return
    yield path


def _walk(root: str, below: str, matches: Callable[[str], bool]) -> Iterator[str]:
    pending = [below]
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(f"{root}/{directory}" if directory else root))
        except (FileNotFoundError, NotADirectoryError):
            continue  # gone since its parent was listed
        except OSError as error:
            if not directory:
                raise CoopError(
                    f"files.hide: {root} cannot be listed: {error.strerror}",
                    "make the workspace readable for you: chmod u+rwx",
                ) from None
            yield directory  # locked, or with a path longer than the kernel takes
            continue
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if matches(path):
                yield path
            elif entry.is_dir(follow_symlinks=False):
                pending.append(path)


def _behind(root: str, path: str) -> Iterator[str]:
    """Yield a match, or what it leads to if it is a link and that is inside the root."""
    if not os.path.islink(f"{root}/{path}"):
        yield path
        return
    real = os.path.realpath(f"{root}/{path}")
    if real.startswith(root + "/") and os.path.lexists(real):
        yield real[len(root) + 1 :]
