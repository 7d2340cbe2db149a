"""System calls that Python's ``os`` lacks, by number, through libc's ``syscall``.

Each wrapper raises OSError with the call's name as its file name, so that a
failure deep in a child says which call refused. Numbers above 423 are the same on
every architecture (Linux: arch/*/entry/syscalls); the others are per machine.

This uses what ``ctypes``, ``struct`` and ``resource`` are made of, or do, since importing
those costs another millisecond, for types that nothing here needs.
"""

from __future__ import annotations

import _ctypes
import errno
import os
from _struct import pack, unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


_ARGUMENTS = 6  # of every call here: the number of a system call and five more
_NOTHING = (0,) * _ARGUMENTS


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "l"


class _Register(_ctypes._SimpleCData):  # type: ignore[type-arg]
    # As an argument: a number of any sign, bytes, an array, or None, as wide as a register. A plain
    # number would be passed as a C int.
    _type_ = "P"


class _Byte(_ctypes._SimpleCData):  # type: ignore[type-arg]
    _type_ = "B"


_Rlimit = _Byte * 16


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long
    _argtypes_ = (_Register,) * _ARGUMENTS


class _Locked(_ctypes.CFuncPtr):
    # The same, called with the interpreter's lock held.
    _flags_ = _Function._flags_ | _ctypes.FUNCFLAG_PYTHONAPI
    _restype_ = _Long
    _argtypes_ = _Function._argtypes_


class _Interpreters(_ctypes.CFuncPtr):
    # A function of the interpreter's own, without arguments.
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_PYTHONAPI
    _restype_ = None


class _Libc:
    """What is linked into this process; named functions are looked up once."""

    _handle = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        function = _Function((name, self))  # type: ignore[arg-type]
        self.__dict__[name] = function
        return function


_libc = _Libc()
_syscall = _libc.syscall

AT_FDCWD = -100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
AT_SYMLINK_NOFOLLOW = 0x100

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SLAVE = 1 << 19
MNT_DETACH = 2

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_NOEXEC = 0x8

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_IN_ROOT = 0x10

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_SET_CHILD_SUBREAPER = 36
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

RLIMIT_DATA, RLIMIT_CORE, RLIMIT_NPROC = 2, 4, 6
O_PATH: int = os.O_PATH
MACHINE = os.uname().machine

_NUMBERS = {
    "x86_64": {"pivot_root": 155, "capset": 126, "keyctl": 250, "clone": 56},
    "aarch64": {"pivot_root": 41, "capset": 91, "keyctl": 219, "clone": 220},
}
_MOST_DESCRIPTORS = 1 << 31
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_RESTRICT_SELF = 446
_OPEN_TREE, _MOVE_MOUNT, _CLOSE_RANGE, _OPENAT2, _MOUNT_SETATTR = 428, 429, 436, 437, 442
_OPEN_TREE_ATTR = 467
_SIGCHLD = 17
_forking: tuple[Any, ...] = ()  # what ``look_up_forking`` has found
_can_open_with = True  # open_tree_attr(2), as far as is known


def look_up(names: Iterable[str]) -> None:
    """Look functions of libc up, for processes that are forked from this one and write little."""
    for name in names:
        getattr(_libc, name)


def supported_machine() -> bool:
    """Tell whether this processor's system calls are known here."""
    return MACHINE in _NUMBERS


def call(name: str, number: int, *arguments: Any) -> int:
    """Make one system call; negative results become OSError with ``name`` in it."""
    return _checked(name, _syscall(number, *arguments, *_NOTHING[len(arguments) + 1 :]))


def _libc_call(name: str, *arguments: Any) -> int:
    return _checked(name, getattr(_libc, name)(*arguments, *_NOTHING[len(arguments) :]))


class Calls:
    """Calls whose arguments are made once, for processes that are to write to little memory.

    Each is a name, the number of a system call (None for a function of libc), and arguments.
    """

    def __init__(self, calls: Iterable[tuple[str, int | None, tuple[Any, ...]]]) -> None:
        self._calls = tuple(_ready(*item) for item in calls)

    def make(self) -> None:
        """Make them all. Raises OSError for the first that is refused."""
        for name, function, arguments in self._calls:
            _checked(name, function(*arguments))


def _ready(name: str, number: int | None, arguments: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    function = getattr(_libc, name) if number is None else _syscall
    given = arguments if number is None else (number, *arguments)
    padded = (*given, *_NOTHING[len(given) :])
    return name, function, tuple(_Register(item) if isinstance(item, int) else item for item in padded)


def _checked(name: str, result: int) -> int:
    # What is a C int stands in a register of 64 bits, whose upper half is not defined.
    if result & 0x80000000:
        code = _ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return result & 0x7FFFFFFF


def look_up_forking() -> tuple[Any, ...]:
    """Look up what ``fork_into`` calls, for processes that are to write little."""
    global _forking
    names = ("PyOS_BeforeFork", "PyOS_AfterFork_Parent", "PyOS_AfterFork_Child")
    own = (_Interpreters((name, _libc)) for name in names)  # type: ignore[arg-type]
    _forking = (_Locked(("syscall", _libc)), *own)  # type: ignore[arg-type]
    return _forking


def fork_into(namespaces: int) -> int:
    """Fork this process, of one thread, into new namespaces; return as fork(2) does: clone(2).

    The interpreter is told as its documentation asks of who forks without it (C API, PyOS_BeforeFork). libc
    is not: what it does at a fork is for processes with several threads, and for names of threads that
    nothing here asks it for. Raises OSError.
    """
    syscall, before, after, after_in_child = _forking or look_up_forking()
    before()
    pid: int = syscall(_NUMBERS[MACHINE]["clone"], namespaces | _SIGCHLD, *_NOTHING[2:])
    if pid == 0:
        after_in_child()
        return 0
    after()
    return _checked("clone", pid)


def unshare(flags: int) -> None:
    """Move into new namespaces: unshare(2)."""
    _libc_call("unshare", flags)


def setns(descriptor: int, kind: int) -> None:
    """Move into an existing namespace: setns(2)."""
    _libc_call("setns", descriptor, kind)


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Mount by path: mount(2)."""
    encoded = [None if item is None else os.fsencode(item) for item in (source, target, kind, options)]
    _libc_call("mount", encoded[0], encoded[1], encoded[2], flags, encoded[3])


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """Unmount: umount2(2)."""
    _libc_call("umount2", os.fsencode(target), flags)


def pivot_root(new_root: str, put_old: str) -> None:
    """Change the root mount: pivot_root(2)."""
    call("pivot_root", _NUMBERS[MACHINE]["pivot_root"], os.fsencode(new_root), os.fsencode(put_old))


def syncfs(descriptor: int) -> None:
    """Write what a file system has not written yet: syncfs(2)."""
    _libc_call("syncfs", descriptor)


def open_tree(directory: int, path: str = "", attributes: int = 0) -> int:
    """Return a descriptor of a detached copy of the mounts at and below a path: open_tree(2).

    An empty path means the descriptor itself. Links are not followed. Every mount of the copy has the
    attributes besides its own.
    """
    flags = 1 | os.O_CLOEXEC | AT_SYMLINK_NOFOLLOW | AT_RECURSIVE  # OPEN_TREE_CLONE
    flags |= AT_EMPTY_PATH if not path else 0
    encoded = os.fsencode(path)
    if not attributes:
        return call("open_tree", _OPEN_TREE, directory, encoded, flags)
    global _can_open_with
    if _can_open_with:
        attr = _mount_attr(attributes)
        found: int = _syscall(_OPEN_TREE_ATTR, directory, encoded, flags, attr, len(attr))
        if not found & 0x80000000:
            return found
        # Linux before 6.15; or a filter that does not know it, as of a container. Else the others fail, too.
        _can_open_with = False
    copy = call("open_tree", _OPEN_TREE, directory, encoded, flags)
    mount_setattr(copy, attributes)
    return copy


def detached_mount(kind: str, attributes: int) -> int:
    """Return a descriptor of a new mount of a file system, which is nowhere yet: fsopen(2), fsmount(2)."""
    context = call("fsopen", _FSOPEN, os.fsencode(kind), 1)  # FSOPEN_CLOEXEC
    try:
        call("fsconfig", _FSCONFIG, context, 6, None, None, 0)  # FSCONFIG_CMD_CREATE
        return call("fsmount", _FSMOUNT, context, 1, attributes)  # FSMOUNT_CLOEXEC
    finally:
        os.close(context)


def move_mount(tree: int, directory: int, path: str = "") -> None:
    """Attach a detached mount: move_mount(2). An empty path means the descriptor itself."""
    flags = 0x4 | (0x40 if not path else 0)  # F_EMPTY_PATH, T_EMPTY_PATH
    call("move_mount", _MOVE_MOUNT, tree, b"", directory, os.fsencode(path), flags)


def mount_setattr(tree: int, attributes: int, *, recursive: bool = True) -> None:
    """Add attributes to a mount, by default to every mount below it: mount_setattr(2)."""
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    attr = _mount_attr(attributes)
    call("mount_setattr", _MOUNT_SETATTR, tree, b"", flags, attr, len(attr))


def _mount_attr(attributes: int) -> bytes:
    return pack("QQQQ", attributes, 0, 0, 0)  # struct mount_attr: set, clear, propagation, user namespace


def openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    """Open a path, which is not made, under restrictions on its resolution: openat2(2)."""
    return _checked("openat2", _openat2(directory, path, flags, resolve))


def openat2_if_there(directory: int, path: str, flags: int, resolve: int) -> int | None:
    """Do what ``openat2`` does; None when there is nothing.

    That is no exception, which would cost a forked process copies of some twenty pages.
    """
    result = _openat2(directory, path, flags, resolve)
    if result & 0x80000000 and _ctypes.get_errno() == errno.ENOENT:
        return None
    return _checked("openat2", result)


def _openat2(directory: int, path: str, flags: int, resolve: int) -> int:
    how = pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)  # struct open_how: flags, mode, resolve
    result: int = _syscall(_OPENAT2, directory, os.fsencode(path), how, len(how), *_NOTHING[5:])
    return result


def close_but(kept: Iterable[int]) -> None:
    """Close every descriptor but those: close_range(2)."""
    first = 0
    for descriptor in (*sorted(kept), _MOST_DESCRIPTORS):
        if first < descriptor:
            call("close_range", _CLOSE_RANGE, first, descriptor - 1, 0)
        first = descriptor + 1


def prctl(option: int, second: int = 0, third: int = 0) -> int:
    """Change an attribute of this process: prctl(2)."""
    return _libc_call("prctl", option, second, third, 0, 0)


def limit_resource(resource: int, most: int, pid: int = 0) -> None:
    """Set a soft and a hard limit of a process, 0: this one; they only ever go down: prlimit(2)."""
    _libc_call("prlimit", pid, resource, _lower(resource, most, pid), None)


def _lower(resource: int, most: int, pid: int = 0) -> bytes:
    buffer = _Rlimit()
    _libc_call("prlimit", pid, resource, None, buffer)
    _, hard = unpack("QQ", bytes(buffer))  # struct rlimit: soft, hard
    value = min(most, hard)
    return pack("QQ", value, value)


def limiting(resource: int, most: int) -> tuple[str, None, tuple[Any, ...]]:
    """Return what ``limit_resource`` does, as one of ``Calls`` of processes that have this one's limits."""
    return "prlimit", None, (0, resource, _lower(resource, most), None)


def set_hostname(name: str) -> None:
    """Name this UTS namespace: sethostname(2)."""
    encoded = os.fsencode(name)
    _libc_call("sethostname", encoded, len(encoded))


def datagram_socket() -> int:
    """Return an IPv4 datagram socket, to configure interfaces with: socket(2)."""
    return _libc_call("socket", 2, 2 | os.O_CLOEXEC, 0)  # AF_INET, SOCK_DGRAM


def new_session_keyring() -> None:
    """Leave the caller's keys behind for an empty anonymous keyring: keyctl(2)."""
    Calls([joining_keyring()]).make()


def joining_keyring() -> tuple[str, int, tuple[Any, ...]]:
    """Return what ``new_session_keyring`` does, as one of ``Calls``."""
    return "keyctl", _NUMBERS[MACHINE]["keyctl"], (1, None)  # KEYCTL_JOIN_SESSION_KEYRING


class Capabilities:
    """Emptying the ambient and inheritable sets, and all but ``kept`` (a bit each) of the others, for good.

    What is not in the bounding set no exec can give back: capabilities(7).
    """

    def __init__(self, kept: int = 0) -> None:
        self._ambient = Calls([("prctl", None, (PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL))])
        self._dropped = tuple(number for number in range(64) if not kept >> number & 1)
        self._sets = Calls([_capset(kept)])

    def drop(self) -> None:
        """Drop them. Raises OSError."""
        self._ambient.make()
        function, rest = _libc.prctl, _NOTHING[2:]
        for number in self._dropped:  # not as ``Calls``: so many would be spread over many pages
            result = function(PR_CAPBSET_DROP, number, *rest)
            if result & 0x80000000 and _ctypes.get_errno() == errno.EINVAL:
                break  # past the last capability that this kernel knows
            _checked("prctl", result)
        self._sets.make()


def drop_capabilities(kept: int = 0) -> None:
    """Drop all capabilities but those, a bit each, for good."""
    Capabilities(kept).drop()


def set_capabilities(kept: int) -> None:
    """Keep of this process's capabilities these, a bit each; root's exec may give more: capset(2)."""
    Calls([_capset(kept)]).make()


def _capset(kept: int) -> tuple[str, int, tuple[Any, ...]]:
    header = pack("II", 0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    sets = pack("6I", kept & 0xFFFFFFFF, kept & 0xFFFFFFFF, 0, kept >> 32, kept >> 32, 0)
    return "capset", _NUMBERS[MACHINE]["capset"], (header, sets)  # effective, permitted, inheritable


def capability_sets() -> tuple[int, int, int]:
    """Return this thread's capabilities, a bit each: inheritable, permitted, effective."""
    lines = dict(line.split(b":", 1) for line in read_file("/proc/thread-self/status").splitlines())
    return int(lines[b"CapInh"], 16), int(lines[b"CapPrm"], 16), int(lines[b"CapEff"], 16)


def set_capability_sets(inheritable: int, permitted: int, effective: int) -> None:
    """Set this thread's capabilities, as ``capability_sets`` returns them: capset(2)."""
    sets = (effective, permitted, inheritable)
    halves = [half >> shift & 0xFFFFFFFF for shift in (0, 32) for half in sets]
    call("capset", _NUMBERS[MACHINE]["capset"], pack("II", 0x20080522, 0), pack("6I", *halves))


def read_file(path: str) -> bytes:
    """Read a small file of the kernel's, whose size its status does not tell."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return read_all(descriptor)
    finally:
        os.close(descriptor)


def read_all(descriptor: int) -> bytes:
    """Read what is left to read."""
    data = b""
    while chunk := os.read(descriptor, 65536):
        data += chunk
    return data


def memory_file(data: bytes) -> int | None:
    """Return a descriptor of a file with that in it, on no disk; None where there are no such files."""
    make = getattr(os, "memfd_create", None)
    if make is None:
        return None
    try:
        descriptor: int = make("coop")
    except OSError:
        return None  # vm.memfd_noexec forbids those that might be executed
    if os.write(descriptor, data) < len(data):
        os.close(descriptor)
        return None
    return descriptor


def write_file(path: str, text: str) -> None:
    """Write an existing control file of the kernel in one go, as its handlers expect."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def memory(address: int, size: int) -> memoryview:
    """Return this process's own memory at an address, to be written."""
    return memoryview((_Byte * size).from_address(address)).cast("B")


def signal_descriptor(numbers: Iterable[int]) -> int:
    """Return a descriptor that these signals, which are blocked, are read from: signalfd(2)."""
    mask = sum(1 << number - 1 for number in numbers).to_bytes(128, "little")  # libc's sigset_t
    return _libc_call("signalfd", -1, mask, os.O_CLOEXEC | os.O_NONBLOCK)


def restrict_self(rules: int) -> None:
    """Hold this process, and all that come of it, to rules of Landlock's; closes their descriptor.

    no_new_privs must be set: landlock_restrict_self(2).
    """
    call("landlock_restrict_self", _RESTRICT_SELF, rules, 0)
    os.close(rules)


class Filter:
    """A seccomp filter, an array of ``struct sock_filter``, where the kernel can read it: seccomp(2)."""

    def __init__(self, program: bytes) -> None:
        self._array = (_Byte * len(program)).from_buffer_copy(program)
        holder = pack("HxxxxxxQ", len(program) // 8, _ctypes.addressof(self._array))  # struct sock_fprog
        self._calls = Calls([("prctl", None, (PR_SET_SECCOMP, 2, holder))])

    def install(self) -> None:
        """Have this process's calls filtered, and those of all that come of it."""
        self._calls.make()


def set_seccomp_filter(program: bytes) -> None:
    """Install a seccomp filter."""
    Filter(program).install()
