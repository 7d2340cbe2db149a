"""The seccomp filter: a deny list assembled for the machine it runs on.

Default allow, because what a development tool may call cannot be listed; denied is
what has no use in the sandbox and has broken sandboxes of this class. Anything that
speaks another ABI than the native one is stopped: i386 on x86-64 (``int 0x80``) is
another audit arch and kills the process; x32 shares the arch, so its numbers are
answered with ENOSYS. seccomp(2), linux/seccomp.h, linux/audit.h, linux/filter.h.
"""

from __future__ import annotations

from _struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

EPERM, ENOSYS, EAFNOSUPPORT = 1, 38, 97

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000

# Per call: numbers on x86-64 and aarch64 (asm/unistd_64.h, asm-generic/unistd.h); None: not there.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # mounts and roots: what the sandbox is made of
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    # namespaces
    "unshare": (272, 97),
    "setns": (308, 268),
    # other processes' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # files by handle, around every path check
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "fanotify_init": (300, 262),
    # kernel memory, modules, programs
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "uselib": (134, None),
    "_sysctl": (156, None),
    "sysfs": (139, None),
    "ustat": (136, None),
    "nfsservctl": (180, 42),
    "lsm_set_self_attr": (460, 460),
    # keys
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
}

# Answered as if the kernel had no such call, so that libc and runtimes fall back:
# io_uring opens and connects without the calls above; clone3 hides its flags behind a pointer, openat2
# the mode of what it makes.
ABSENT: dict[str, tuple[int | None, int | None]] = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
    "openat2": (437, 437),
}

CLONE = (56, 220)
IOCTL = (16, 29)
SOCKET = (41, 198)
SOCKETPAIR = (53, 199)

# CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}; NEWTIME's bit is the exit signal's in clone(2).
NEW_NAMESPACES = 0x7E020000
# TIOCSTI and TIOCLINUX put input into the terminal; TIOCCONS and TIOCSETD redirect and re-drive it.
# The kernel looks at the low 32 bits of the request, so the filter does (CVE-2019-10063).
DENIED_IOCTLS = (0x5412, 0x541C, 0x541D, 0x5423)
# AF_UNIX, AF_INET, AF_INET6, AF_NETLINK; the rest (vsock, packet, alg, can, …) is attack surface.
FAMILIES = (1, 2, 10, 16)

# Calls that set a mode, by its position: the command could leave the caller's other
# programs, or other users, a set-id file of the caller's in the workspace.
MODES: dict[str, tuple[int | None, int | None, int]] = {
    "chmod": (90, None, 1),
    "fchmod": (91, 52, 1),
    "fchmodat": (268, 53, 2),
    "fchmodat2": (452, 452, 2),
    "creat": (85, None, 1),
}
# The same by the positions of the flags and of the mode, which counts only when a file is made. Writing
# takes the bits away again, but set-group-id stays while the group may not execute the file, and an access
# control list, a name behind a pointer, lets it do so later: setattr_should_drop_sgid, posix_acl_update_mode.
OPEN: dict[str, tuple[int | None, int | None, int, int]] = {
    "open": (2, None, 1, 2),
    "openat": (257, 56, 2, 3),
}
MAKES = 0x400040  # O_CREAT, __O_TMPFILE
SET_ID = 0o6000

# Not denied while a root file system is built: apk runs the scripts of packages in a chroot.
BUILDING = ("chroot",)
# While a root file system is built: answered with success, without effect. There is one id, which owns
# everything; and what is built is put on disk as a whole, or not at all.
FAKED: dict[str, tuple[int | None, int | None]] = {
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),  # the answer is the id before: 0 it is
    "setfsgid": (123, 152),
    "setgroups": (116, 159),
    "capset": (126, 91),
    "sync": (162, 81),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "sync_file_range": (277, 84),
    "syncfs": (306, 267),
}
# mknod and its like by the position of the mode: devices are faked, FIFOs and sockets made.
MAKE_NODE: dict[str, tuple[int | None, int | None, int]] = {"mknod": (133, None, 1), "mknodat": (259, 33, 2)}
_FORMAT, _DEVICES = 0o170000, (0o020000, 0o060000)
# File capabilities are faked too, but names of attributes are behind a pointer. So what tells them is the
# size of the value (the fourth argument), of struct vfs_cap_data or vfs_ns_cap_data: linux/capability.h.
SET_ATTRIBUTE: dict[str, tuple[int, int]] = {
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
}
_CAPABILITY_SIZES = (20, 24)

# A limit of 1 on core dumps keeps them from the host's handler, 0 does not (core(5)). So lowering it
# has no effect, but succeeds: programs that hold keys forbid their own dumps, and give up if they cannot.
PRLIMIT, SETRLIMIT = (302, 261), (160, 164)
_RLIMIT_CORE = 4

_LOAD, _AND, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _FIRST_LOW = 0, 4, 16  # offsets in struct seccomp_data, little endian
_ARGUMENT = 8
_SECOND_LOW = _FIRST_LOW + _ARGUMENT
_THIRD_LOW, _THIRD_HIGH = _FIRST_LOW + 2 * _ARGUMENT, _FIRST_LOW + 2 * _ARGUMENT + 4
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


_FEW = 8  # numbers that are compared one by one

_pack = Struct("<HBBI").pack


def _instruction(code: int, operand: int, when_true: int = 0, when_false: int = 0) -> bytes:
    return _pack(code, when_true, when_false, operand)


def _answer(verdict: int) -> bytes:
    return _instruction(_RETURN, verdict)


def _check_argument(offset: int, tests: list[tuple[int, int]], otherwise: int) -> bytes:
    """Return the block of a call whose answer depends on an argument's low 32 bits.

    ``tests`` are (operand, verdict) pairs compared for equality; what none matches
    gets ``otherwise``.
    """
    block = _instruction(_LOAD, offset)
    for operand, verdict in tests:
        block += _instruction(_JUMP_EQUAL, operand, 0, 1) + _answer(verdict)
    return block + _answer(otherwise)


def _keep_core_limit(column: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks that make setting RLIMIT_CORE a success without effect; reading it works."""
    done = _answer(_ERRNO) + _answer(_ALLOW)
    block = _instruction(_LOAD, _FIRST_LOW) + _instruction(_JUMP_EQUAL, _RLIMIT_CORE, 0, 1)
    yield SETRLIMIT[column], block + done
    block = _instruction(_LOAD, _SECOND_LOW) + _instruction(_JUMP_EQUAL, _RLIMIT_CORE, 0, 5)
    block += _instruction(_LOAD, _THIRD_LOW) + _instruction(_JUMP_EQUAL, 0, 0, 2)
    block += _instruction(_LOAD, _THIRD_HIGH) + _instruction(_JUMP_EQUAL, 0, 1, 0)
    yield PRLIMIT[column], block + done


def _forbid_set_ids(column: int) -> Iterator[tuple[int | None, bytes]]:
    """Yield the blocks that deny every mode of a file that sets a set-id bit."""
    check = _instruction(_JUMP_SET, SET_ID, 0, 1) + _answer(_ERRNO | EPERM) + _answer(_ALLOW)
    for *columns, flags, position in OPEN.values():
        block = _instruction(_LOAD, _FIRST_LOW + flags * _ARGUMENT)
        block += _instruction(_JUMP_SET, MAKES, 1, 0) + _answer(_ALLOW)
        yield columns[column], block + _instruction(_LOAD, _FIRST_LOW + position * _ARGUMENT) + check
    for *columns, position in (*MODES.values(), *MAKE_NODE.values()):
        yield columns[column], _instruction(_LOAD, _FIRST_LOW + position * _ARGUMENT) + check


def _fake(column: int) -> Iterator[tuple[int | None, bytes]]:
    """Yield the blocks that make changes of owners, ids, devices and file capabilities a success."""
    success = _answer(_ERRNO)
    for numbers in FAKED.values():
        yield numbers[column], success
    for *columns, position in MAKE_NODE.values():
        block = _instruction(_LOAD, _FIRST_LOW + position * _ARGUMENT) + _instruction(_AND, _FORMAT)
        for device in _DEVICES:
            block += _instruction(_JUMP_EQUAL, device, 0, 1) + success
        yield columns[column], block + _answer(_ALLOW)
    sizes = [(size, _ERRNO) for size in _CAPABILITY_SIZES]
    for pair in SET_ATTRIBUTE.values():
        yield pair[column], _check_argument(_FIRST_LOW + 3 * _ARGUMENT, sizes, _ALLOW)


def _blocks(column: int, *, building: bool) -> Iterator[tuple[int | None, bytes]]:
    """Yield the number of every call that is not simply allowed, None: not there, and its block."""
    deny = _answer(_ERRNO | EPERM)
    ioctls = [(request, _ERRNO | EPERM) for request in DENIED_IOCTLS]
    yield IOCTL[column], _check_argument(_SECOND_LOW, ioctls, _ALLOW)
    families = _check_argument(_FIRST_LOW, [(family, _ALLOW) for family in FAMILIES], _ERRNO | EAFNOSUPPORT)
    yield SOCKET[column], families
    yield SOCKETPAIR[column], families
    block = _instruction(_LOAD, _FIRST_LOW) + _instruction(_JUMP_SET, NEW_NAMESPACES, 0, 1)
    yield CLONE[column], block + deny + _answer(_ALLOW)
    yield from _fake(column) if building else _forbid_set_ids(column)
    yield from _keep_core_limit(column)
    for name, numbers in DENIED.items():
        if not (building and name in BUILDING):
            yield numbers[column], deny
    absent = _answer(_ERRNO | ENOSYS)
    for numbers in ABSENT.values():
        yield numbers[column], absent


def _search(calls: list[tuple[int, bytes]]) -> bytes:
    """Return the program that finds a number's block by halves, and allows what has none.

    The kernel runs a new filter for every number, to know which it need not be asked about again
    (seccomp_cache_prepare): one by one that took longer than all else about it.
    """
    if len(calls) > _FEW:
        middle = len(calls) // 2
        below = _search(calls[:middle])
        skip = _instruction(_JUMP_GREATER_EQUAL, calls[middle][0], len(below) // 8, 0)
        return skip + below + _search(calls[middle:])
    numbers: dict[bytes, list[int]] = {}
    for number, block in calls:
        numbers.setdefault(block, []).append(number)
    program = b""
    for block, (*others, last) in numbers.items():
        for position, number in enumerate(others):
            program += _instruction(_JUMP_EQUAL, number, len(others) - position, 0)
        program += _instruction(_JUMP_EQUAL, last, 0, len(block) // 8) + block
    return program + _answer(_ALLOW)


def build(machine: str, *, building: bool = False) -> bytes:
    """Return the filter for ``x86_64`` or ``aarch64`` as an array of struct sock_filter.

    ``building`` is for the building of a root file system: there set-id bits may be set, chroot
    is left to capabilities, and what takes other ids than one succeeds without effect.
    """
    program = _instruction(_LOAD, _ARCH)
    program += _instruction(_JUMP_EQUAL, AUDIT_ARCH[machine], 1, 0)
    program += _answer(_KILL_PROCESS) + _instruction(_LOAD, _NUMBER)
    if machine == "x86_64":
        program += _instruction(_JUMP_GREATER_EQUAL, X32_BIT, 0, 1) + _answer(_ERRNO | ENOSYS)
    found = _blocks(0 if machine == "x86_64" else 1, building=building)
    return program + _search(sorted((number, block) for number, block in found if number is not None))
