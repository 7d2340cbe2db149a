"""Writing the bundles that ``startup`` reads."""

from __future__ import annotations

import marshal
import os

from coopfile import lean, startup, wholefile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.startup import Part


def write(name: str) -> None:
    """Write a bundle where Python would write ``.pyc`` files; not being able to is no error."""
    try:
        place = startup.path(name)
        parts = marshal.dumps((startup.PACKAGE, tuple(map(_part, startup.BUNDLES[name]))))
        mode = os.stat(startup.__file__).st_mode & 0o666
        wholefile.write(place, startup.header(parts) + parts, mode, durable=False)
    except (OSError, SyntaxError, NotImplementedError):
        pass  # no room, or a package that does not lie on disk as files of sources


def _part(name: str) -> Part:
    """Return a module's part of a bundle: its code, and by what its source is known."""
    module = f"coopfile.{name}"
    source = f"{startup.PACKAGE}/{name.replace('.', '/')}"
    source = f"{source}/__init__.py" if os.path.isdir(source) else f"{source}.py"
    status = os.stat(source)
    with open(source, "rb") as file:
        code = lean.compiled(file.read(), source)
    return module, source, status.st_mtime_ns, status.st_size, code
