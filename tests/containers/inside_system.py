"""Probes that run in a sandbox: networks, rights, the kernel, and what programs find."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import os
import pwd
import resource
import socket
import stat
import subprocess
import sys
import tempfile
import time

from tests.containers.attempts import (
    FACTS,
    LIBC,
    each,
    opened_to_write,
    probe,
    read,
    refused,
    tried,
)

_PTRACE_SEIZE = 0x4206
_CLONE_NEWUSER = 0x10000000
_PR_GET_NO_NEW_PRIVS = 39
# Of the kernel's generic table for new calls, and x86-64's and arm64's for the others.
_CALLS = {"bpf": (321, 280), "keyctl": (250, 219), "perf_event_open": (298, 241), "userfaultfd": (323, 282)}
_CALLS["io_uring_setup"] = (425, 425)


# --- network


@probe
def interfaces() -> str:
    """There is no interface but loopback."""
    return " ".join(sorted(name for _, name in socket.if_nameindex()))


@probe
def loopback() -> str:
    """A server on the sandbox's own loopback can be reached from within."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=5),
    ):
        return "works"


@probe
def loopback_version_6() -> str:
    """The same with IPv6."""
    with (
        socket.create_server(("::1", 0), family=socket.AF_INET6) as server,
        socket.create_connection(server.getsockname()[:2], timeout=5),
    ):
        return "works"


@probe
def listener_of_the_host() -> str:
    """A server on the host's loopback is out of reach."""
    return "reached" if connected("127.0.0.1", FACTS["port"]) else "out of reach"


def connected(address: str, port: int) -> bool:
    """Tell whether a server can be reached."""
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


@probe
def abstract_socket_of_the_host() -> str:
    """A Unix socket of the host without a file is out of reach."""
    client = socket.socket(socket.AF_UNIX)
    return "reached" if tried(client.connect, "\0" + FACTS["abstract"]) == "done" else "out of reach"


@probe
def name_servers() -> str:
    """Without a network nothing tells which name servers the host asks."""
    try:
        lines = read("/etc/resolv.conf").decode().splitlines()
    except OSError:
        return "none"
    # 0.0.0.0 is the sandbox's own loopback, where libc looks without a file too.
    known = {line.split()[1] for line in lines if line.startswith("nameserver")} - {"0.0.0.0"}
    return "named" if known or any(line.startswith("search") and len(line) > 8 for line in lines) else "none"


# --- who and with what rights


@probe
def identity() -> str:
    """The command is root or the caller, has an account that says so, a home, and no other groups."""
    uid, gid = os.getuid(), os.getgid()
    account = pwd.getpwuid(uid)
    assert {*os.getgroups(), gid} == {gid}, os.getgroups()
    assert account.pw_dir == os.environ["HOME"] and account.pw_name == os.environ["USER"], account
    return "root" if uid == gid == 0 else "me"


@probe
def accounts() -> str:
    """Accounts of the host do not show."""
    known = {"root", "nobody", "nogroup", os.environ["USER"]}
    return "also: " + " ".join(sorted({entry.pw_name for entry in pwd.getpwall()} - known))


@probe
def capabilities() -> str:
    """No set of capabilities has any."""
    status = _status("self")
    return each(((name, status[name].lstrip("0") or "0") for name in status if name.startswith("Cap")), "0")


def _status(pid: str) -> dict[str, str]:
    lines = read(f"/proc/{pid}/status").decode().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@probe
def no_new_privileges() -> str:
    """Set-id programs give nothing."""
    value = LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
    return {1: "set", 0: "not set"}.get(value, "unknown")


@probe
def set_id_program() -> str:
    """A set-id program of the host's root runs as the command itself does."""
    done = subprocess.run(["./root-id", "-u"], capture_output=True, text=True, check=True)
    return "as before" if int(done.stdout) == os.getuid() else f"as {done.stdout.strip()}"


@probe
def system_call_filter() -> str:
    """System calls are filtered."""
    return {"2": "filtered", "0": "not filtered"}.get(_status("self").get("Seccomp", "?"), "unknown")


@probe
def dangerous_calls() -> str:
    """Calls that widen what of the kernel can be reached are refused."""
    index = 0 if os.uname().machine == "x86_64" else 1
    outcomes = []
    for name, numbers in sorted(_CALLS.items()):
        ctypes.set_errno(0)
        result = LIBC.syscall(ctypes.c_long(numbers[index]), 0, 0, 0, 0, 0)
        number = ctypes.get_errno()
        # EINVAL and EFAULT come from the call itself: it was let through.
        refusals = (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.ENODEV)
        outcomes.append((name, "refused" if result < 0 and number in refusals else "let through"))
    return each(outcomes, "refused")


@probe
def namespaces() -> str:
    """No user namespace can be made."""
    return "done" if LIBC.unshare(_CLONE_NEWUSER) == 0 else "denied"


@probe
def mounting() -> str:
    """Nothing can be mounted or unmounted, and the root cannot be changed."""
    LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, b"")
    mounted = LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, b"") == 0
    unmounted = LIBC.umount2(b"/workspace/release.sh", 2) == 0
    outcomes = [("mount", mounted), ("unmount", unmounted), ("chroot", not refused(os.chroot, "/tmp"))]
    return each(((name, "done" if did else "denied") for name, did in outcomes), "denied")


@probe
def devices() -> str:
    """/dev has harmless devices; the verdict names what is there besides."""
    return "also: " + " ".join(sorted(set(os.listdir("/dev")) - set(FACTS["devices"])))


@probe
def working_devices() -> str:
    """null, zero, full, random and the sandbox's own terminals work."""
    assert read("/dev/null") == b"" and len(os.urandom(8)) == 8
    with open("/dev/zero", "rb") as file:
        assert file.read(3) == b"\0\0\0"
    with open("/dev/random", "rb") as file:
        assert len(file.read(3)) == 3
    with open("/dev/null", "wb") as file:
        file.write(b"x")
    assert tried(lambda: os.write(os.open("/dev/full", os.O_WRONLY), b"x")) == "ENOSPC"
    controller, other = os.openpty()
    os.write(controller, b"x")
    return "work" if os.ttyname(other).startswith("/dev/pts/") else os.ttyname(other)


@probe
def making_devices() -> str:
    """No device can be made in the workspace or in /tmp, or at least not be opened."""
    outcomes = []
    for path in ("device", "/tmp/device"):
        outcome = tried(os.mknod, path, 0o600 | stat.S_IFBLK, os.makedev(8, 0))
        if outcome == "done":
            outcome = "made and opened" if not refused(read, path) else "made, and cannot be opened"
            os.unlink(path)
        outcomes.append((path, outcome))
    return each(outcomes, "denied")


# --- the kernel's file systems


@probe
def writing_to_proc() -> str:
    """The kernel's settings cannot be changed; the verdict names what could be opened."""
    paths = ["sys/kernel/core_pattern", "sys/kernel/hostname", "sys/kernel/domainname", "sysrq-trigger"]
    paths += ["sys/vm/drop_caches", "sys/vm/overcommit_memory", "sys/net/ipv4/ip_forward", "sys/fs/file-max"]
    paths += ["bus", "irq/default_smp_affinity", "sys/fs/mqueue/msg_max"]
    return "open: " + " ".join(path for path in paths if not refused(opened_to_write, f"/proc/{path}"))


@probe
def masked_proc() -> str:
    """What /proc tells about the machine's memory and keys is hidden; the verdict names what shows."""
    shown = []
    for name in FACTS["masked"]:
        path = f"/proc/{name}"
        with contextlib.suppress(OSError):
            if os.listdir(path) if os.path.isdir(path) else _readable(path):
                shown.append(name)
    return "shows: " + " ".join(shown)


def _readable(path: str) -> bool:
    """Tell whether a file gives anything now; some would wait for more."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return bool(os.read(descriptor, 64))
    finally:
        os.close(descriptor)


@probe
def sys_directory() -> str:
    """/sys is not there, or at least cannot be written."""
    if not os.path.isdir("/sys") or not os.listdir("/sys"):
        return "absent"
    for directory, names, files in os.walk("/sys"):
        for name in files:
            path = f"{directory}/{name}"
            if os.lstat(path).st_mode & 0o222 and not refused(opened_to_write, path):
                return f"{path} can be written"
        if directory.count("/") > 3:
            names.clear()
    return "read-only"


@probe
def processes() -> str:
    """Only the sandbox's own processes are seen."""
    found = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    return "own" if len(found) <= 4 and 1 in found else f"{len(found)} processes"


@probe
def first_process() -> str:
    """PID 1 cannot be traced or looked into by the command."""
    traced = LIBC.ptrace(_PTRACE_SEIZE, 1, None, None) == 0
    outcomes = [("trace", "done" if traced else "denied")]
    for name in ("environ", "maps"):
        outcomes.append((name, "denied" if tried(read, f"/proc/1/{name}") != "done" else "read"))
    return each(outcomes, "denied")


@probe
def orphans() -> str:
    """A process whose parent has ended is PID 1's, which reaps it."""
    receive, send = os.pipe()
    if os.fork() == 0:
        child = os.fork()
        if child == 0:
            time.sleep(0.1)
            os._exit(0)
        os.write(send, str(child).encode())
        os._exit(0)
    os.wait()
    child = int(os.read(receive, 32))
    end = time.monotonic() + 5
    while os.path.exists(f"/proc/{child}"):
        if time.monotonic() > end:
            return "left as zombies"
        time.sleep(0.02)
    return "reaped"


# --- scratch space


@probe
def scratch() -> str:
    """Temporary directories and the home are empty, writable, theirs, and can hold programs."""
    outcomes = []
    for path in ("/tmp", "/var/tmp", "/run", "/dev/shm", "~"):
        real = os.path.expanduser(path)
        outcomes.append((path, _scratch(real)))
    return each(outcomes, "works")


def _scratch(path: str) -> str:
    mode = oct(stat.S_IMODE(os.stat(path).st_mode))
    if mode != ("0o700" if path == os.environ["HOME"] else "0o1777"):
        return mode
    with tempfile.TemporaryDirectory(dir=path) as directory:
        program = f"{directory}/program"
        with open(program, "w") as file:
            file.write("#!/bin/sh\nexit 0\n")
        os.chmod(program, 0o755)
        return tried(subprocess.run, [program]).replace("done", "works").replace("denied", "noexec")


@probe
def scratch_is_empty() -> str:
    """Scratch space begins empty, but for what is given and kept below the home."""
    usual = {"given-read", "given-write", "given-file", ".claude"}
    places = ("/tmp", "/var/tmp", "/run", "/dev/shm", "~")
    found = {path: sorted(set(os.listdir(os.path.expanduser(path))) - usual) for path in places}
    return each(((path, " ".join(names) or "empty") for path, names in found.items()), "empty")


# --- environment and names


@probe
def variables() -> str:
    """The environment is exactly the documented list; the verdict names what is there besides."""
    names = {entry.split(b"=")[0].decode() for entry in read("/proc/self/environ").split(b"\0") if entry}
    absent = " ".join(sorted(set(FACTS["variables"]) - names))
    return "also: " + " ".join(sorted(names - set(FACTS["variables"]))) + (absent and f", without: {absent}")


@probe
def hostile_values() -> str:
    """Values of the host's variables and of the plan arrive as they are, whatever is in them."""
    outcomes = []
    for name, expected in FACTS["digests"].items():
        value = os.environb.get(name.encode())
        found = None if value is None else hashlib.sha256(value).hexdigest()
        outcomes.append((name, "intact" if found == expected else "changed"))
    return each(outcomes, "intact")


@probe
def hostile_arguments() -> str:
    """Arguments arrive as they are, whatever is in them."""
    found = [hashlib.sha256(os.fsencode(word)).hexdigest() for word in sys.argv[2:]]
    return "intact" if found == FACTS["arguments"] else "changed"


@probe
def host_name() -> str:
    """The machine's name is coop, and cannot be changed."""
    names = {os.uname().nodename, read("/etc/hostname").decode().strip()}
    assert socket.gethostbyname("localhost") == "127.0.0.1"
    LIBC.sethostname(b"other", 5)
    return " ".join(sorted(names | {os.uname().nodename}))


@probe
def working_directory() -> str:
    """The command stands in the workspace."""
    return f"{os.getcwd()} {os.environ['PWD']} {os.environ['COOP_WORKSPACE']}"


@probe
def core_dumps() -> str:
    """A crash dumps no core: what the host does with cores is not for sandboxes to start."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    return "none" if 0 <= soft <= 1 else f"soft {soft}, hard {hard}"


@probe
def programs() -> str:
    """The host's tools work: a shell, threads, locks, processes, listing directories."""
    script = (
        "import multiprocessing as m, threading\n"
        "t = threading.Thread(target=print, args=('thread',)); t.start(); t.join(); m.Lock()\n"
        "with m.get_context('fork').Pool(2) as p: print(sum(p.map(abs, [-1, 2])))\n"
    )
    argvs = {
        "python": ["/usr/bin/python3", "-I", "-c", script],
        "shell": ["sh", "-c", "a=$(echo x | cat) && test $a = x"],
        "ls -l": ["ls", "-l", "/"],
        "id": ["id"],
    }
    done = {name: subprocess.run(argv, capture_output=True, check=False) for name, argv in argvs.items()}
    return each(((name, "work" if run.returncode == 0 else "fail") for name, run in done.items()), "work")
