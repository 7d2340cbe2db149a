"""System calls that have broken sandboxes: each is called on its own, in every ABI.

The numbers are the kernel's own (arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h), not those of the filter.
"""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

import errno
import json
import platform
import signal
from typing import Any

import pytest

from tests.sandboxes import Project

pytestmark = pytest.mark.native

X86 = platform.machine() == "x86_64"
COLUMN = 0 if X86 else 1
X32_BIT = 0x40000000

# Number on x86-64 and on the others; None: not there.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "acct": (163, 89), "unshare": (272, 97), "setns": (308, 268), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18), "syslog": (103, 116), "vhangup": (153, 58), "uselib": (134, None),
    "_sysctl": (156, None), "sysfs": (139, None), "ustat": (136, None), "nfsservctl": (180, 42),
    "lsm_set_self_attr": (460, 460), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "move_pages": (279, 239), "migrate_pages": (256, 238),
}  # fmt: skip
ABSENT = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "clone3": 435,
    "openat2": 437,
}

# Gone from newer kernels, or built in or not: what they answer outside says nothing.
NOT_EVERYWHERE = {
    "_sysctl",
    "uselib",
    "nfsservctl",
    "lookup_dcookie",
    "modify_ldt",
    "kexec_load",
    "kexec_file_load",
}

# Calls every given number in a child of its own, with arguments that no call accepts, and prints the
# errno (0: success; negative: killed by that signal) as JSON.
PROBE = """
import ctypes, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, *arguments):
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 0
        wide = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
        if libc.syscall(ctypes.c_long(number), *wide) < 0:
            code = ctypes.get_errno()
        os.write(send, str(code).encode())
        os._exit(0)
    os.close(send)
    text = os.read(receive, 16)
    os.close(receive)
    _, status = os.waitpid(pid, 0)
    return int(text) if text else -os.WTERMSIG(status)
"""
EACH = (
    PROBE
    + """
print(json.dumps({name: attempt(number, *[-1] * 6) for name, number in json.loads(sys.argv[1]).items()}))
"""
)


def inside(project: Project, script: str, *arguments: str) -> Any:
    """Run a probe in the sandbox and return what it printed."""
    result = project.python(script, *arguments)
    assert result.status == 0, result
    return json.loads(result.out)


def outside(project: Project, script: str, *arguments: str) -> Any:
    """Run a probe as the same user without a sandbox and return what it printed."""
    result = project.actor.run("setsid", "--wait", "/usr/bin/python3", "-I", "-c", script, *arguments)
    assert result.status == 0, result
    return json.loads(result.out)


def numbers() -> dict[str, int]:
    """Return the refused calls of this machine."""
    return {name: row[COLUMN] for name, row in REFUSED.items() if row[COLUMN] is not None}  # type: ignore[misc]


def test_each_call_is_refused(project: Project) -> None:
    """Each dangerous call answers EPERM on its own, whatever its arguments."""
    found = inside(project, EACH, json.dumps(numbers()))
    assert {name: code for name, code in found.items() if code != errno.EPERM} == {}


def test_refused_by_the_filter(project: Project) -> None:
    """Outside, root gets another answer to the same calls: it is the filter that says EPERM."""
    if project.actor.uid != 0:
        pytest.skip("an unprivileged user is refused many of them anyway")
    asked = {name: number for name, number in numbers().items() if name not in {"vhangup", *NOT_EVERYWHERE}}
    found = outside(project, EACH, json.dumps(asked))
    assert sorted(name for name, code in found.items() if code == errno.EPERM) == []


def test_absent_calls(project: Project) -> None:
    """io_uring and clone3 are answered as if this kernel had none, so that libraries fall back."""
    found = inside(project, EACH, json.dumps(ABSENT))
    assert found == dict.fromkeys(ABSENT, errno.ENOSYS)
    assert outside(project, EACH, json.dumps({"clone3": 435})) != {"clone3": errno.ENOSYS}


@pytest.mark.skipif(not X86, reason="x32 is an ABI of x86-64")
def test_x32(project: Project) -> None:
    """No number of the x32 ABI reaches a call, neither the refused ones nor x32's own."""
    asked = {name: number | X32_BIT for name, number in numbers().items()}
    asked.update({f"own{number}": number | X32_BIT for number in range(512, 548)})
    asked.update({"getpid": 39 | X32_BIT, "highest": 0xFFFFFFFF, "sign": 0x80000000 | 165})
    found = inside(project, EACH, json.dumps(asked))
    assert {name: code for name, code in found.items() if code != errno.ENOSYS} == {}


I386 = (
    PROBE
    + """
import mmap
def interrupt(number):
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    # push rbx; mov eax, number; xor ebx, ebx; int 0x80; pop rbx; ret
    code.write(b"\\x53\\xb8" + number.to_bytes(4, "little") + b"\\x31\\xdb\\xcd\\x80\\x5b\\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(code))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if ctypes.CFUNCTYPE(ctypes.c_int)(address)() else 1)
    _, status = os.waitpid(pid, 0)
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
print(json.dumps([interrupt(number) for number in (20, 21, 52, 26, 102, 310, 387, 425)]))
"""
)


@pytest.mark.skipif(not X86, reason="i386 is an ABI of x86-64 kernels")
def test_i386(project: Project) -> None:
    """``int 0x80`` is killed at once, from getpid to mount."""
    if outside(project, I386)[0] != 0:
        pytest.skip("this kernel runs no i386 code")
    assert inside(project, I386) == [-signal.SIGSYS] * 8


ARM32 = (
    PROBE
    + """
import struct
def program(number):
    # movw r7, number; svc 0; mov r0, 0; mov r7, 1 (exit); svc 0
    code = struct.pack("<5I", 0xE3007000 | number >> 12 << 16 | number & 0xFFF, 0xEF000000, 0xE3A00000, 0xE3A07001, 0xEF000000)
    start, size = 0x10000 + 84, 84 + len(code)
    ident = b"\\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    header = struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, start, 52, 0, 0x05000200, 52, 32, 1, 0, 0, 0)
    return ident + header + struct.pack("<8I", 1, 0, 0x10000, 0x10000, size, size, 5, 0x10000) + code
def execute(number):
    place = os.memfd_create("arm32")
    os.write(place, program(number))
    pid = os.fork()
    if pid == 0:
        try:
            os.execve(place, ["arm32"], {})
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps([execute(number) for number in (20, 21, 52, 26, 120, 337, 425, 0xFFFF)]))
"""
)


@pytest.mark.skipif(platform.machine() != "aarch64", reason="32-bit ARM is an ABI of aarch64 kernels")
def test_arm32(project: Project) -> None:
    """A program of 32-bit ARM is killed at its first call, whichever it is."""
    if outside(project, ARM32)[0] != 0:
        pytest.skip("this machine runs no programs of 32-bit ARM")
    assert inside(project, ARM32) == [-signal.SIGSYS] * 8


FAMILIES = (
    PROBE
    + """
call = {"x86_64": (41, 53), "aarch64": (198, 199)}[os.uname().machine]
found = {}
for family in range(64):
    for kind in (1, 2, 3, 5):
        for number in call:
            for high in (0, 1 << 32):
                pair = (ctypes.c_int * 2)()
                code = attempt(number, family | high, kind, 0, ctypes.byref(pair))
                found.setdefault(str(family), set()).add(code)
print(json.dumps({family: sorted(codes) for family, codes in found.items()}))
"""
)


def test_socket_families(project: Project) -> None:
    """Sockets are local, internet or netlink; vsock, packet, alg and all others do not exist."""
    found = inside(project, FAMILIES)
    others = {family: codes for family, codes in found.items() if int(family) not in (1, 2, 10, 16)}
    assert set(map(tuple, others.values())) == {(errno.EAFNOSUPPORT,)}
    assert 0 in found["1"] and 0 in found["2"]


CLONE = (
    PROBE
    + """
number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
def clone(flags):
    result = libc.syscall(ctypes.c_long(number), ctypes.c_long(flags | 17), 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
    return 0 if result > 0 else ctypes.get_errno()
user = 0x10000000
flags = [1 << bit for bit in (17, 25, 26, 27, 28, 29, 30)]
print(json.dumps([clone(0), [clone(flag | high) for flag in (*flags, *(flag | user for flag in flags)) for high in (0, 1 << 32)]]))
"""
)


def test_new_namespaces(project: Project) -> None:
    """A process can be cloned, but into no new namespace, with or without a user namespace."""
    plain, others = inside(project, CLONE)
    assert plain == 0
    assert set(others) == {errno.EPERM}
    assert 0 in outside(project, CLONE)[1]


FOREIGN = (
    PROBE
    + """
# Where one call in several does not use its argument's high half, the filter must not either.
number = {"x86_64": 272, "aarch64": 97}[os.uname().machine]
print(json.dumps([attempt(number, 0x10000000 | high) for high in (0, 1 << 32, -1 << 32)]))
"""
)


def test_unshare_with_high_bits(project: Project) -> None:
    """unshare(CLONE_NEWUSER) is refused in every spelling."""
    assert inside(project, FOREIGN) == [errno.EPERM] * 3


THREADS = """
import threading, ctypes
libc = ctypes.CDLL(None, use_errno=True)
codes = []
def attack():
    libc.unshare(0x10000000)
    codes.append(ctypes.get_errno())
thread = threading.Thread(target=attack)
thread.start(); thread.join()
print(codes)
"""


def test_threads_are_filtered(project: Project) -> None:
    """A thread made inside is as restricted as the process."""
    assert project.python(THREADS).out.strip() == "[1]"
