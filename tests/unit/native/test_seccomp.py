"""The seccomp filter, run by an interpreter of its own on every call that it is about."""

from __future__ import annotations

import ctypes
import os
import struct

import pytest

from coopfile.native import seccomp

MACHINES = ("x86_64", "aarch64")
X86_64, AARCH64, I386, ARM = 0xC000003E, 0xC00000B7, 0x40000003, 0x40000028
ALLOW, KILL, SUCCESS = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS, EAFNOSUPPORT = 0x00050001, 0x00050026, 0x00050061
MOST_INSTRUCTIONS = 4096  # BPF_MAXINSNS


def instructions(machine: str, *, building: bool = False) -> list[tuple[int, int, int, int]]:
    """Return the filter as (code, jump if true, jump if false, operand)."""
    return list(struct.iter_unpack("<HBBI", seccomp.build(machine, building=building)))


def verdict(
    machine: str, number: int, *arguments: int, arch: int | None = None, building: bool = False
) -> int:
    """Run the filter on a system call as the kernel's classic BPF does; return its answer."""
    arch = (X86_64 if machine == "x86_64" else AARCH64) if arch is None else arch
    padded = [argument & 0xFFFFFFFFFFFFFFFF for argument in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    program = instructions(machine, building=building)
    accumulator = position = 0
    while True:
        code, when_true, when_false, operand = program[position]
        position += 1
        if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            (accumulator,) = struct.unpack_from("<I", data, operand)
        elif code == 0x54:  # BPF_ALU | BPF_AND | BPF_K
            accumulator &= operand
        elif code == 0x06:  # BPF_RET | BPF_K
            return operand
        else:
            taken = {
                0x05: True,  # BPF_JA is not conditional; its offset is the operand
                0x15: accumulator == operand,
                0x25: accumulator > operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }[code]
            position += operand if code == 0x05 else when_true if taken else when_false


def numbers(machine: str, calls: dict[str, tuple[int | None, int | None]]) -> list[tuple[str, int]]:
    """Return (name, number) of those of some calls that a machine has."""
    column = MACHINES.index(machine)
    return [(name, pair[column]) for name, pair in calls.items() if pair[column] is not None]  # type: ignore[misc]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("building", [False, True])
def test_well_formed(machine: str, building: bool) -> None:
    """The program is small enough, every jump stays inside, and it cannot run off its end."""
    program = instructions(machine, building=building)
    assert len(program) <= MOST_INSTRUCTIONS
    assert program[-1][0] == 0x06
    for position, (code, when_true, when_false, operand) in enumerate(program):
        assert code in (0x20, 0x06, 0x15, 0x25, 0x35, 0x45, 0x54)
        if code not in (0x20, 0x06, 0x54):
            assert position + 1 + max(when_true, when_false) < len(program)
        if code == 0x20:
            assert operand % 4 == 0 and operand < 64


def test_the_kernel_takes_it() -> None:
    """The kernel accepts the program of this machine."""
    if os.uname().machine not in MACHINES:
        pytest.skip(f"no program for {os.uname().machine}")
    from coopfile.native import syscalls

    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
            syscalls.set_seccomp_filter(seccomp.build(syscalls.MACHINE))
            ctypes.CDLL(None, use_errno=True).unshare(0x10000000)
            status = 0 if ctypes.get_errno() == 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("machine", MACHINES)
def test_every_denied_call(machine: str) -> None:
    """Each call of the list is denied by its own number, whatever its arguments."""
    for name, number in numbers(machine, seccomp.DENIED):
        for argument in (0, 1, 0xFFFFFFFFFFFFFFFF):
            assert verdict(machine, number, *[argument] * 6) == EPERM, name


@pytest.mark.parametrize("machine", MACHINES)
def test_every_absent_call(machine: str) -> None:
    """Each call of the other list is answered as if the kernel did not have it."""
    for name, number in numbers(machine, seccomp.ABSENT):
        assert verdict(machine, number) == ENOSYS, name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("building", [False, True])
def test_numbers_differ(machine: str, building: bool) -> None:
    """No number has two answers, of which the search would find either."""
    blocks = seccomp._blocks(MACHINES.index(machine), building=building)
    all_numbers = [number for number, _ in blocks if number is not None]
    assert len(all_numbers) == len(set(all_numbers))


# By hand from asm/unistd_64.h and asm-generic/unistd.h, not from the module.
@pytest.mark.parametrize(
    ("name", "x86_64", "aarch64"),
    [
        ("mount", 165, 40),
        ("umount2", 166, 39),
        ("ptrace", 101, 117),
        ("bpf", 321, 280),
        ("unshare", 272, 97),
        ("setns", 308, 268),
        ("keyctl", 250, 219),
        ("open_by_handle_at", 304, 265),
        ("process_vm_readv", 310, 270),
        ("process_vm_writev", 311, 271),
        ("perf_event_open", 298, 241),
        ("userfaultfd", 323, 282),
        ("kexec_load", 246, 104),
        ("fsopen", 430, 430),
        ("move_mount", 429, 429),
        ("mount_setattr", 442, 442),
        ("pidfd_getfd", 438, 438),
        ("add_key", 248, 217),
        ("request_key", 249, 218),
        ("reboot", 169, 142),
        ("pivot_root", 155, 41),
        ("chroot", 161, 51),
    ],
)
def test_known_numbers(name: str, x86_64: int, aarch64: int) -> None:
    """The numbers of the calls that matter most are those of the kernel's headers."""
    assert verdict("x86_64", x86_64) == EPERM, name
    assert verdict("aarch64", aarch64) == EPERM, name


@pytest.mark.parametrize(
    ("name", "x86_64", "aarch64"),
    [
        ("read", 0, 63),
        ("write", 1, 64),
        ("openat", 257, 56),
        ("execve", 59, 221),
        ("execveat", 322, 281),
        ("mmap", 9, 222),
        ("futex", 202, 98),
        ("wait4", 61, 260),
        ("epoll_pwait", 281, 22),
        ("getrandom", 318, 278),
        ("statx", 332, 291),
        ("rseq", 334, 293),
        ("faccessat2", 439, 439),
        ("pidfd_open", 434, 434),
        ("close_range", 436, 436),
        ("landlock_restrict_self", 446, 446),
        ("futex_waitv", 449, 449),
        ("memfd_create", 319, 279),
        ("seccomp", 317, 277),
    ],
)
def test_everyday_calls(name: str, x86_64: int, aarch64: int) -> None:
    """What programs need every day is allowed, on both machines."""
    assert verdict("x86_64", x86_64) == ALLOW, name
    assert verdict("aarch64", aarch64) == ALLOW, name


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("arch", [I386, ARM, X86_64, AARCH64, 0, 0xFFFFFFFF])
@pytest.mark.parametrize("building", [False, True])
def test_other_architectures(machine: str, arch: int, building: bool) -> None:
    """A call of any other architecture ends the process, whatever its number."""
    if arch == {"x86_64": X86_64, "aarch64": AARCH64}[machine]:
        getpid = 39 if machine == "x86_64" else 172
        assert verdict(machine, getpid, arch=arch, building=building) == ALLOW
        return
    for number in (0, 1, 20, 102, 165, 425, 0x40000000):
        assert verdict(machine, number, arch=arch, building=building) == KILL


@pytest.mark.parametrize("building", [False, True])
def test_x32(building: bool) -> None:
    """Every number of the x32 ABI is answered with ENOSYS on x86-64, those denied natively included."""
    for number in [*range(600), *(pair[0] for pair in seccomp.DENIED.values() if pair[0] is not None)]:
        assert verdict("x86_64", number | 0x40000000, building=building) == ENOSYS
    assert verdict("x86_64", 0xFFFFFFFF, building=building) == ENOSYS
    assert verdict("x86_64", 0x80000000 | 165, building=building) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("request_", [0x5412, 0x541C, 0x541D, 0x5423])
def test_ioctls(machine: str, request_: int) -> None:
    """The terminal's dangerous requests are denied, whatever is in the high half of the argument."""
    number = 16 if machine == "x86_64" else 29
    for high in (0, 1 << 32, 0xFFFFFFFF << 32, 1 << 63):
        assert verdict(machine, number, 0, request_ | high) == EPERM
    for harmless in (0x5401, 0x5413, 0x5421, 0x541B, 0x5411, request_ + 0x10000):
        assert verdict(machine, number, 0, harmless) == ALLOW
    # The request is the second argument, not the first.
    assert verdict(machine, number, request_, 0x5401) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("bit", [17, 25, 26, 27, 28, 29, 30])
def test_clone_of_namespaces(machine: str, bit: int) -> None:
    """clone cannot make any namespace, alone or among other flags."""
    number = 56 if machine == "x86_64" else 220
    for other in (0, 17, 0x01200011, 0x003D0F00, 0xFFFFFFFF << 32):
        assert verdict(machine, number, (1 << bit) | other) == EPERM


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("flags", [17, 0x01200011, 0x003D0F00, 0x00004111, 0x80000000 | 17])
def test_clone_of_processes_and_threads(machine: str, flags: int) -> None:
    """fork, vfork, posix_spawn and threads work through clone."""
    assert verdict(machine, 56 if machine == "x86_64" else 220, flags) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("family", range(50))
def test_socket_families(machine: str, family: int) -> None:
    """Sockets are of the local, internet or netlink families; others do not exist."""
    socket, pair = (41, 53) if machine == "x86_64" else (198, 199)
    expected = ALLOW if family in (1, 2, 10, 16) else EAFNOSUPPORT
    for call in (socket, pair):
        assert verdict(machine, call, family, 1, 0) == expected
        # The kernel takes the family as an int: what is above it does not count.
        assert verdict(machine, call, family | 1 << 32, 1, 0) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_core_limit_is_kept(machine: str) -> None:
    """Setting the limit of core dumps succeeds without effect; reading it and other limits are real."""
    prlimit, setrlimit = (302, 160) if machine == "x86_64" else (261, 164)
    success = 0x00050000
    assert verdict(machine, setrlimit, 4) == success
    assert verdict(machine, setrlimit, 7) == ALLOW
    for new in (0x1000, 1 << 32, 1 << 63, 0x7FFD12345678):
        assert verdict(machine, prlimit, 0, 4, new) == success
        assert verdict(machine, prlimit, 0, 7, new) == ALLOW
    assert verdict(machine, prlimit, 0, 4, 0, 0x1000) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_else_is_denied(machine: str) -> None:
    """Of all numbers up to 600, exactly those of the lists are denied whatever their arguments."""
    denied = {number for _, number in numbers(machine, {**seccomp.DENIED, **seccomp.ABSENT})}
    found = {number for number in range(600) if verdict(machine, number, 1) not in (ALLOW, 0x00050000)}
    special = {40, 41, 53, 198, 199}  # socket and socketpair of family 1 are allowed anyway
    assert found - special == denied - special


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("x86_64", "aarch64", "position"),
    [
        (90, None, 1),  # chmod
        (91, 52, 1),  # fchmod
        (268, 53, 2),  # fchmodat
        (452, 452, 2),  # fchmodat2
        (85, None, 1),  # creat
        (133, None, 1),  # mknod
        (259, 33, 2),  # mknodat
    ],
)
def test_set_id_modes(machine: str, x86_64: int, aarch64: int | None, position: int) -> None:
    """No way of changing a file's mode can set the set-user-id or set-group-id bit; all other modes work."""
    number = x86_64 if machine == "x86_64" else aarch64
    if number is None:
        number = 90  # capset on aarch64
        assert verdict(machine, number, 3, 0o6755) == ALLOW
        return
    for mode in (0, 0o644, 0o755, 0o1777, 0o100644):
        arguments = [3, 3, 3]
        arguments[position] = mode
        assert verdict(machine, number, *arguments) == ALLOW, oct(mode)
    for mode in (0o4755, 0o2755, 0o6000, 0o104755, 0o4000 | 1 << 32):
        arguments = [3, 3, 3]
        arguments[position] = mode
        assert verdict(machine, number, *arguments) == EPERM, oct(mode)
        assert verdict(machine, number, *arguments, building=True) == ALLOW, oct(mode)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("x86_64", "aarch64", "position"), [(2, None, 1), (257, 56, 2)])  # open, openat
def test_set_id_modes_of_new_files(machine: str, x86_64: int, aarch64: int | None, position: int) -> None:
    """A file cannot be made with a set-id bit; where none is made what stands for the mode says nothing."""
    number = x86_64 if machine == "x86_64" else aarch64
    if number is None:
        return

    def opened(flags: int, mode: int, *, building: bool = False) -> int:
        arguments = [3, 3, 3, 3]
        arguments[position : position + 2] = [flags, mode]
        return verdict(machine, number, *arguments, building=building)

    creat, tmpfile = 0o100, 0o20000000
    for flags in (creat | 2, tmpfile | 2, creat | 1 << 32):
        for mode in (0o4755, 0o2666, 0o6000, 0o2000 | 1 << 32):
            assert opened(flags, mode) == EPERM
            assert opened(flags, mode, building=True) == ALLOW
        assert opened(flags, 0o1777) == ALLOW
    assert opened(0o200000, 0o6755) == ALLOW  # O_DIRECTORY on x86-64, also a bit of O_TMPFILE


# By hand from asm/unistd_64.h and asm-generic/unistd.h, not from the module.
FAKED: dict[str, tuple[int | None, int | None]] = {
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setuid": (105, 146),
    "setgid": (106, 144),
    "setreuid": (113, 145),
    "setregid": (114, 143),
    "setgroups": (116, 159),
    "setresuid": (117, 147),
    "setresgid": (119, 149),
    "setfsuid": (122, 151),
    "setfsgid": (123, 152),
    "capset": (126, 91),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "sync": (162, 81),
    "sync_file_range": (277, 84),
    "syncfs": (306, 267),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_builds_fake_owners(machine: str) -> None:
    """While building, what changes owners, ids and capabilities succeeds without effect; runs make it."""
    for name, number in numbers(machine, FAKED):
        for argument in (0, 1, 0xFFFFFFFFFFFFFFFF):
            assert verdict(machine, number, *[argument] * 6, building=True) == SUCCESS, name
            assert verdict(machine, number, *[argument] * 6) == ALLOW, name
    faked = {number for number in range(600) if verdict(machine, number, 1, building=True) == SUCCESS}
    assert faked == {number for _, number in numbers(machine, FAKED)}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("x86_64", "aarch64", "position"), [(133, None, 1), (259, 33, 2)])
def test_builds_fake_devices(machine: str, x86_64: int, aarch64: int | None, position: int) -> None:
    """While building, device nodes are made without effect; files, FIFOs and sockets are really made."""
    number = x86_64 if machine == "x86_64" else aarch64
    if number is None:
        return
    for kind, expected in (
        (0o020000, SUCCESS),  # character
        (0o060000, SUCCESS),  # block
        (0o100000, ALLOW),
        (0o010000, ALLOW),
        (0o140000, ALLOW),
        (0, ALLOW),
    ):
        for mode in (0, 0o644, 0o4755, 1 << 32):
            arguments = [3, 3, 3, 0x103]
            arguments[position] = kind | mode
            assert verdict(machine, number, *arguments, building=True) == expected, oct(kind | mode)
            assert verdict(machine, number, *arguments) == (EPERM if mode & 0o6000 else ALLOW)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("x86_64", "aarch64"), [(188, 5), (189, 6), (190, 7)])
def test_builds_fake_file_capabilities(machine: str, x86_64: int, aarch64: int) -> None:
    """While building, an attribute of the size of file capabilities is set without effect, others really."""
    number = x86_64 if machine == "x86_64" else aarch64
    for size in (20, 24):
        assert verdict(machine, number, 1, 2, 3, size, building=True) == SUCCESS
    for size in (0, 1, 12, 19, 21, 28, 36, 44):
        assert verdict(machine, number, 1, 2, 3, size, building=True) == ALLOW
    assert {verdict(machine, number, 1, 2, 3, size) for size in range(64)} == {ALLOW}


@pytest.mark.parametrize("machine", MACHINES)
def test_builds_are_fenced_like_runs(machine: str) -> None:
    """What the filter of a build does not fake it answers like that of a run, chroot aside."""
    column = MACHINES.index(machine)
    fake = {number for _, number in numbers(machine, FAKED)} | {(161, 51)[column]}
    for number in set(range(600)) - fake:
        for arguments in ((1, 1, 1), (0x10000000, 0, 0), (40, 0, 0)):
            assert verdict(machine, number, *arguments, building=True) == verdict(machine, number, *arguments)
    assert verdict(machine, (16, 29)[column], 0, 0x5412, building=True) == EPERM
    assert verdict(machine, (161, 51)[column], building=True) == ALLOW
