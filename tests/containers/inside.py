"""Probes that run in a sandbox: a program of its own, given to the sandbox's Python as text.

``python3 -I -c TEXT FACTS``: FACTS is what the host knows, as JSON. It prints the
verdicts by name, as JSON. Each probe is a function; its docstring says what it shows.
A verdict is a short text that does not depend on the machine: where kernels differ in
*how* they refuse, it says ``denied`` or ``absent``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import pwd
import resource
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

FACTS: Any = {}
PROBES: dict[str, Callable[[], str]] = {}
PATIENCE = 20  # seconds that one probe may take

# ETXTBSY: a program that runs. EINVAL: a user that the sandbox does not have. EISDIR: gVisor's of a mount.
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV}
_DENIED |= {errno.ETXTBSY, errno.EINVAL, errno.EISDIR}
_ABSENT = {errno.ENOENT, errno.ENOTDIR}
_LIBC = ctypes.CDLL(None, use_errno=True)
_PTRACE_SEIZE = 0x4206
_CLONE_NEWUSER = 0x10000000
_PR_GET_NO_NEW_PRIVS = 39
# Of the kernel's generic table for new calls, and x86-64's and arm64's for the others.
_CALLS = {"bpf": (321, 280), "keyctl": (250, 219), "perf_event_open": (298, 241), "userfaultfd": (323, 282)}
_CALLS["io_uring_setup"] = (425, 425)


def probe(function: Callable[[], str]) -> Callable[[], str]:
    """Add a function to the probes, under its name with spaces."""
    PROBES[function.__name__.replace("_", " ")] = function
    return function


def tried(call: Callable[..., Any], *arguments: Any) -> str:
    """Return ``done``, or in one word why it was not."""
    try:
        call(*arguments)
    except OSError as error:
        return word(error.errno)
    return "done"


def word(number: int | None) -> str:
    """Return what an error number comes to."""
    if number in _DENIED:
        return "denied"
    return "absent" if number in _ABSENT else errno.errorcode.get(number or 0, str(number))


def each(outcomes: Iterable[tuple[str, str]], usual: str) -> str:
    """Return ``usual`` when everything came to that, else what came to something else."""
    odd = [f"{name}: {outcome}" for name, outcome in outcomes if outcome != usual]
    return ", ".join(odd) or usual


def read(path: str) -> bytes:
    """Return what is in a file."""
    with open(path, "rb") as file:
        return file.read(1 << 20)


def write(path: str) -> None:
    """Add to a file, or make it."""
    with open(path, "ab") as file:
        file.write(b"written by the sandbox\n")


def make(path: str) -> None:
    """Make an empty file, which must not be there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))


def replace(path: str) -> None:
    """Put another file in the place of a path."""
    make("replacement")
    try:
        os.rename("replacement", path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink("replacement")


def moved(path: str) -> None:
    """Rename a path."""
    os.rename(path, f"{path}-moved")


def linked(path: str) -> None:
    """Give a file a second name, and take it away again."""
    os.link(path, "second-name")
    os.unlink("second-name")


def attempts(path: str, *calls: Callable[[str], Any], usual: str = "denied") -> str:
    """Try calls on a path; return the usual outcome, or those that came to another."""
    return each(((call.__name__, tried(call, path)) for call in calls), usual)


def chmodded(path: str) -> None:
    """Give everybody every right to a path."""
    os.chmod(path, 0o777)


def below(path: str) -> None:
    """Make a file below a path."""
    make(f"{path}/x")


def filled(path: str) -> None:
    """Make a directory with a file in it."""
    os.makedirs(path)
    below(path)


def pointed(path: str) -> None:
    """Make a symbolic link."""
    os.symlink("plain.txt", path)


def instead(path: str) -> None:
    """Make a file in the place of an empty directory."""
    os.rmdir(path)
    write(path)


def opened_to_write(path: str) -> None:
    """Open a file to write to it."""
    os.close(os.open(path, os.O_WRONLY))


def refused(call: Callable[..., Any], *arguments: Any) -> bool:
    """Tell whether a call fails."""
    return tried(call, *arguments) != "done"


# --- the workspace


@probe
def workspace_is_read_and_written() -> str:
    """Files of the workspace can be read, changed, renamed, linked, removed and made executable."""
    assert read("plain.txt") == b"plain\n"
    write("plain.txt")
    os.mkdir("made")
    make("made/file")
    os.rename("made/file", "made/other")
    os.link("made/other", "made/second")
    os.symlink("other", "made/link")
    os.unlink("made/second")
    os.chmod("made/other", 0o755)
    with open("made/script", "w") as file:
        file.write("#!/bin/sh\nexit 3\n")
    os.chmod("made/script", 0o700)
    return "done" if subprocess.run(["./made/script"], check=False).returncode == 3 else "not executed"


@probe
def new_files() -> str:
    """What is made in the workspace belongs to the command, with the modes of umask 022."""
    make("new-file")
    os.close(os.open("new-file-0666", os.O_CREAT | os.O_WRONLY, 0o666))
    os.mkdir("new-directory")
    found = [os.stat(path) for path in ("new-file", "new-file-0666", "new-directory")]
    assert {(status.st_uid, status.st_gid) for status in found} == {(os.getuid(), os.getgid())}
    return " ".join(oct(stat.S_IMODE(status.st_mode)) for status in found)


@probe
def set_id_files() -> str:
    """A file cannot be made to run with its owner's rights."""
    make("set-id")
    return tried(os.chmod, "set-id", 0o6755)


@probe
def giving_files_away() -> str:
    """The command can give its files to nobody else."""
    make("gift")
    return tried(os.chown, "gift", 12345, 12345)


@probe
def sockets_and_pipes() -> str:
    """Unix sockets and named pipes work in the workspace and in /tmp."""
    for directory in (".", "/tmp"):
        server = socket.socket(socket.AF_UNIX)
        server.bind(f"{directory}/a-socket")
        server.listen()
        client = socket.socket(socket.AF_UNIX)
        client.connect(f"{directory}/a-socket")
        os.unlink(f"{directory}/a-socket")
        os.mkfifo(f"{directory}/a-pipe")
        os.unlink(f"{directory}/a-pipe")
    return "done"


# --- the host outside the workspace


@probe
def host_files() -> str:
    """The caller's home, keys, other projects and the host's own files are not there."""
    home = FACTS["home"]
    paths = [home, f"{home}/.ssh/id_ed25519", f"{home}/notes.txt", FACTS["other"], FACTS["workspace"]]
    paths += ["/etc/shadow", "/etc/ssh", "/etc/sudoers", "/var/lib", "/var/log", "/boot", "/srv", "/opt"]
    paths += ["/root/.bashrc", "/run/docker.sock", "/var/run/docker.sock", "/mnt", "/media"]
    return each(((path.replace(home, "~"), tried(os.lstat, path)) for path in paths), "absent")


@probe
def writing_outside() -> str:
    """Nothing can be made in the directories of the root file system."""
    paths = [
        "/",
        "/usr",
        "/usr/bin",
        "/usr/local/bin",
        "/bin",
        "/lib",
        "/etc",
        "/var",
        "/home",
        "/proc",
        "/dev",
    ]
    there = [path for path in paths if os.path.isdir(path)]
    return each(((path, "denied" if refused(make, f"{path}/x") else "done") for path in there), "denied")


@probe
def changing_tools() -> str:
    """The host's tools cannot be changed, nor can the files that say who is who."""
    paths = ["/usr/bin/env", "/usr/bin/python3", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname"]
    return each(((path, attempts(path, write, os.unlink, moved, chmodded)) for path in paths), "denied")


@probe
def root_directory() -> str:
    """The root has what programs need; the verdict names what is there besides."""
    usual = {"bin", "dev", "etc", "lib", "proc", "root", "run", "sbin", "tmp", "usr", "var", "workspace"}
    usual |= {"lib32", "lib64", "libx32", "nix", "home"}
    return "also: " + " ".join(sorted(set(os.listdir("/")) - usual))


@probe
def etc_directory() -> str:
    """/etc shows what native shows; the verdict names what is there besides."""
    return "also: " + " ".join(sorted(set(os.listdir("/etc")) - set(FACTS["etc"])))


# --- guards

_HIDDEN_FILES = (".env", "sub/.env.local")


@probe
def hidden_file() -> str:
    """A hidden file cannot be read, written, removed, replaced, renamed, given modes, or linked."""
    calls = (read, write, os.unlink, replace, moved, chmodded, linked)
    return each(((path, attempts(path, *calls)) for path in _HIDDEN_FILES), "denied")


@probe
def hidden_directory() -> str:
    """A hidden directory cannot be listed, entered, written, removed, renamed or given modes."""
    inner = f"secrets/{FACTS['inner']}"
    there = attempts(inner, read, write, os.unlink)
    new = tried(make, "secrets/new")
    itself = attempts("secrets", os.listdir, os.rmdir, moved, chmodded)
    return each((("below", there), ("new", new), ("itself", itself)), "denied")


@probe
def parent_of_hidden() -> str:
    """The directories above a hidden file cannot be renamed away, with it or without."""
    return attempts("sub", moved)


@probe
def protected_file() -> str:
    """A protected file can be read, and not be written, removed, replaced, renamed or given modes."""
    calls = (write, os.unlink, replace, moved, chmodded)
    for path in ("release.sh", "deep/er/kept", "Coopfile", ".git/config"):
        outcome = attempts(path, *calls)
        if outcome != "denied" or not read(path):
            return f"{path}: {outcome}"
    return "read-only"


@probe
def protected_directory() -> str:
    """What is in a protected directory cannot be changed, nor can it be replaced."""
    there = attempts("locked/inner", write, os.unlink, moved, chmodded)
    itself = attempts("locked", moved, chmodded)
    new = tried(make, "locked/new")
    return each((("below", there), ("itself", itself), ("new", new)), "denied")


@probe
def parents_of_protected() -> str:
    """The directories above something protected stay where they are, and are otherwise usable."""
    stay = each(((path, attempts(path, moved)) for path in ("deep/er", "deep", ".git")), "denied")
    write("deep/er/sibling")
    os.mkdir("deep/new")
    os.rename("deep/new", "deep/newer")
    return stay


@probe
def making_the_missing() -> str:
    """Protected paths that do not exist cannot be made, by any way."""
    paths = ("missing.cfg", "none/such/file", ".git/hooks", ".envrc")
    outcomes = []
    for path in paths:
        for way in (write, filled, pointed, replace, below, instead):
            outcomes.append((f"{path} {way.__name__}", "refused" if refused(way, path) else "done"))
    with contextlib.suppress(OSError):
        moved("none")
        outcomes.append(("none renamed", "done"))
    return each(outcomes, "refused")


@probe
def given_paths() -> str:
    """files.read gives files and directories to read, files.write to write; no guard is lost by that."""
    home = os.environ["HOME"]
    read(f"{home}/given-read/file")
    read(f"{home}/given-file")
    outcome = attempts(f"{home}/given-read/file", write, os.unlink, moved)
    outcome = each((("read", outcome), ("file", attempts(f"{home}/given-file", write, os.unlink))), "denied")
    write(f"{home}/given-write/file")
    os.mkdir(f"{home}/given-write/new")
    return outcome


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
    value = _LIBC.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
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
        result = _LIBC.syscall(ctypes.c_long(numbers[index]), 0, 0, 0, 0, 0)
        number = ctypes.get_errno()
        # EINVAL and EFAULT come from the call itself: it was let through.
        refusals = (errno.EPERM, errno.ENOSYS, errno.EACCES, errno.ENODEV)
        outcomes.append((name, "refused" if result < 0 and number in refusals else "let through"))
    return each(outcomes, "refused")


@probe
def namespaces() -> str:
    """No user namespace can be made."""
    return "done" if _LIBC.unshare(_CLONE_NEWUSER) == 0 else "denied"


@probe
def mounting() -> str:
    """Nothing can be mounted or unmounted, and the root cannot be changed."""
    _LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, b"")
    mounted = _LIBC.mount(b"none", b"/tmp", b"tmpfs", 0, b"") == 0
    unmounted = _LIBC.umount2(b"/workspace/release.sh", 2) == 0
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
    traced = _LIBC.ptrace(_PTRACE_SEIZE, 1, None, None) == 0
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
    """Scratch space begins empty, but for what is given below the home."""
    usual = {"given-read", "given-write", "given-file"}
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
    _LIBC.sethostname(b"other", 5)
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


def main() -> None:
    """Run every probe in a process of its own, and print all verdicts."""
    FACTS.update(json.loads(sys.argv[1]))
    verdicts = {}
    for name, function in PROBES.items():
        verdicts[name] = _alone(function)
    leave_behind()
    print(json.dumps(verdicts), flush=True)
    sys.stdin.read(1)  # the host looks at the sandbox meanwhile


def _alone(function: Callable[[], str]) -> str:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        signal.alarm(PATIENCE)
        try:
            verdict = function()
        except BaseException as error:
            verdict = f"{type(error).__name__}: {error}"
        os.write(send, verdict.encode(errors="replace")[:4000])
        os._exit(0)
    os.close(send)
    with open(receive, "rb") as file:
        verdict = file.read().decode()
    _, status = os.waitpid(pid, 0)
    return verdict or f"ended with status {status}"


def leave_behind() -> None:
    """Start a process that nobody waits for, marked by an argument."""
    subprocess.Popen(
        ["sleep", "".join(FACTS["mark"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


if __name__ == "__main__" and sys.argv[0] == "-c":
    main()
