"""The program ``coop``, which is started often: what the usual commands import comes out of one file.

Python finds, checks, opens and reads modules one by one. For the forty of a cached ``coop run`` that takes
as long as making what is in them. So their code lies in a *bundle*, too, beside the ``.pyc`` files that
Python writes, where who can write the one can write the others. It counts while each of its sources is as it
was, by the same signs as a ``.pyc`` file. Without one that counts, modules are imported as ever.
"""

import gc
import marshal
import os
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import MAGIC_NUMBER, SourceFileLoader, cache_from_source
from _imp import source_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import NoReturn

    # A module's name, the path of its source, the time of that in nanoseconds, its size, and the code.
    Part = tuple[str, str, int, int, CodeType]

PACKAGE = os.path.dirname(__file__)
_HASHED = 8  # bytes in front of a bundle: a crash may leave it cut or full of zeros
_VERSION = int.from_bytes(MAGIC_NUMBER, "little")
_INIT = "/__init__.py"
_LINE = (
    *("cli", "errors", "record", "plan", "plan.sessions", "cli.options", "cli.main", "native"),
    *("native.marks", "find"),
)
# What verbs import when they have nothing to compile, each module behind those that it imports.
BUNDLES = {
    "run": (
        *_LINE,
        *("audit", "plan.hosttools", "plan.launch", "plan.bind", "launching", "plan.model"),
        *("plan.cache", "cli.execution", "native.suitable", "native.syscalls", "native.sources"),
        *("native.kept", "native.running", "native.landlock", "native.namespaces", "native.report"),
        *("native.seccomp", "native.signals", "native.streams", "native.title", "native.cgroups"),
        *("native.confine", "native.spawn", "native.guards", "native.operations", "native.tree"),
        *("native.init", "native.limits", "native.placeholders", "native.monitor", "native.runner"),
        *("native.hierarchies", "native.enforcing", "native.links", "native.layout", "native.prepared"),
        "native.preparing",
    ),
    # Of a run whose plan has values that are records.
    "items": ("language", "language.items"),
    # Of a run on an image, besides.
    "image": (
        *("language", "language.items", "rootfs", "rootfs.hold", "rootfs.base", "native.overlay"),
        "native.layered",
    ),
    # Of a run whose only way out is a proxy.
    "proxy": (
        *("language", "language.items", "plan.reach", "listed", "native.beside", "native.proxied"),
        "native.serving",
    ),
    "exec": (
        *_LINE,
        *("native.wire", "cli.exec"),
    ),
    # While a session runs the command.
    "attached": (
        *("audit", "native.signals", "session", "session.model", "cli.attached", "session.client"),
        "session.installs",
    ),
}
_INTERRUPTED = 130  # what a shell tells of Ctrl-C
_missing: list[str] = []  # bundles that were asked for
_alone = False  # whether this process is ``coop``, which has one thread
_kept: list[object] = []


def entry() -> "NoReturn":
    """Be the program: run the command line, and end without the 2 ms of taking the interpreter apart.

    Nothing here lives long enough for the collector, which would also copy, in each child,
    every page that it looks at.
    """
    global _alone
    _alone = True
    gc.disable()
    try:
        status = _run()
    except KeyboardInterrupt:
        status = _INTERRUPTED
    os._exit(status)


def _run() -> int:
    verb = _verb(sys.argv[1:]) if sys.platform == "linux" else None
    if verb == "exec" or (verb == "run" and "--session" not in sys.argv):
        load(verb)
    from coopfile.cli.main import main

    status = main()
    try:
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            tell(f"coop: error: the output cannot be written: {error.strerror}\n")
        status = status or 125
    tell("")
    if _missing and status == 0 and not sys.dont_write_bytecode and _may_write():
        from coopfile import bundle

        for name in _missing:
            bundle.write(name)
    return status


def _verb(arguments: list[str]) -> str | None:
    """Return the verb that a command line seems to have, be it behind options, if it has a bundle."""
    options_first = bool(arguments) and arguments[0].startswith("-")
    words = arguments if options_first else arguments[:1]
    return next((word for word in words if word in ("run", "exec")), None)


def keep(*values: object) -> None:
    """Keep values to the end of the program ``coop``, which frees nothing: see ``entry``.

    After a fork it would copy every page that they lie on, to free them. Elsewhere this has no effect.
    """
    if _alone:
        _kept.extend(values)


def tell(text: str) -> None:
    """Write to standard error what a person should know.

    That it cannot be, as on a full disk, changes nothing of how a command ended.
    """
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass


def _may_write() -> bool:
    try:
        return os.access(os.path.dirname(path("run")), os.W_OK)
    except NotImplementedError:
        return False


def path(name: str) -> str:
    """Return where a bundle lies. Raises NotImplementedError where Python keeps no ``.pyc`` files."""
    return cache_from_source(f"{PACKAGE}/{name}.py").removesuffix(".pyc") + ".bundle"


def load(name: str) -> bool:
    """Import the modules of a bundle; tell whether there is one that counts. Else ``entry`` writes one."""
    parts = _read(name)
    if parts is None:
        _missing.append(name)
        return False
    modules = sys.modules
    for module, source, _, _, code in parts:
        if module not in modules and not _execute(module, source, code):
            break  # whoever imports it is told why
    return True


def load_more(name: str) -> None:
    """Do what ``load`` does, in the program ``coop``: elsewhere another thread may be importing the same."""
    if _alone and f"{__package__}.{BUNDLES[name][-1]}" not in sys.modules:
        load(name)


def _read(name: str) -> "tuple[Part, ...] | None":
    try:
        descriptor = os.open(path(name), os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, NotImplementedError):
        return None
    try:
        data = memoryview(os.read(descriptor, os.fstat(descriptor).st_size))
    finally:
        os.close(descriptor)
    if data[:_HASHED] != header(data[_HASHED:]):
        return None
    try:
        package, parts = marshal.loads(data[_HASHED:])
        if package != PACKAGE:
            return None  # it has been moved, and the code tells of files at the old place
        for _, source, changed, size, _ in parts:
            status = os.stat(source)
            if status.st_mtime_ns != changed or status.st_size != size:
                return None
    except (OSError, ValueError, EOFError, TypeError):
        return None
    found: tuple[Part, ...] = parts
    return found


def header(data: bytes | memoryview) -> bytes:
    """Return what stands in front of a bundle's parts, by this version of Python."""
    return source_hash(_VERSION, data)


def _execute(name: str, source: str, code: "CodeType") -> bool:
    """Make a module as the import system does; tell whether that succeeded."""
    is_package = source.endswith(_INIT)
    parent, _, last = name.rpartition(".")
    spec = ModuleSpec(name, SourceFileLoader(name, source), origin=source, is_package=is_package)
    spec.has_location = True
    module = type(sys)(name)
    module.__dict__.update(
        __spec__=spec, __loader__=spec.loader, __file__=source, __package__=name if is_package else parent
    )
    if is_package:
        spec.submodule_search_locations = module.__path__ = [source.removesuffix(_INIT)]
    sys.modules[name] = module
    try:
        exec(code, module.__dict__)
    except Exception:
        del sys.modules[name]
        return False
    if parent:
        setattr(sys.modules[parent], last, module)
    return True
