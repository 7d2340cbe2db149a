"""Networks without privileges: pasta, else slirp4netns, beside the sandbox.

Each is a process outside that makes connections of its own for what the sandbox sends into
a tap device. What it may reach is all that the host may: what must stay out of reach is up to
the rules inside the sandbox's namespace (``nftables``).
Sources: pasta(1), passt 2023_03_09 and 2025_05_03; slirp4netns(1), 1.0 and newer; libslirp 4.7, socket.c.
"""

from __future__ import annotations

import fcntl
import os
import select
import time
from _signal import pidfd_send_signal  # type: ignore[import-not-found, unused-ignore]

from coopfile.errors import CoopError
from coopfile.native import dns, signals, syscalls
from coopfile.native.links import resolve
from coopfile.native.network import Means, UnusableError
from coopfile.plan.endpoints import NAMESERVER
from coopfile.plan.launch import PATH, inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PASTA = "pasta"
PROGRAMS = (PASTA, "slirp4netns")
_INSTALL = "install the package passt"
TUN = "/dev/net/tun"
INTERFACE = "eth0"
_READY = 15.0  # seconds that a program may take to connect the sandbox
_MEMORY = 512 << 20  # bytes, private ones of such a program
_MOST_SAID = 65536  # bytes of what it says, of which the last line is shown
_F_SETSIG = 10  # fcntl(2); the fcntl module has it on some systems only

# The sandbox's own address and its router's, the same in every sandbox: nobody else sees them.
_PASTA = (
    "--foreground",
    "--quiet",
    "--config-net",
    "--no-netns-quit",
    # It writes its number there when it is ready.
    "--pid=/proc/self/fd/1",
    # No ports either way, past the tap device, and no address that stands for the host. Who does not
    # know these options is from before 2024_08_21, and may repeat what a server sends when the client
    # has closed its half of a connection.
    "--tcp-ports=none",
    "--udp-ports=none",
    "--tcp-ns=none",
    "--udp-ns=none",
    "--map-host-loopback=none",
    "--map-guest-addr=none",
    "--no-dhcp",
    "--no-dhcpv6",
    "--no-ra",
    f"--ns-ifname={INTERFACE}",
    "--address=10.0.2.100",
    "--netmask=24",
    "--gateway=10.0.2.2",
    "--address=fd00:c00b::100",
    "--gateway=fd00:c00b::2",
    f"--dns-forward={NAMESERVER}",
)
_SLIRP = (
    "--configure",
    "--mtu=65520",
    "--cidr=10.0.2.0/24",
    "--disable-host-loopback",
    "--enable-sandbox",
    "--enable-seccomp",
)


class Connection:
    """A running program that connects a sandbox; it ends with the process that started it, or on ``close``.

    ``tcp_dns`` tells whether the name server answers over TCP: pasta of 2023 would take that
    connection to whoever has this address in the host's network.
    """

    def __init__(self, pid: int, held: int, *, tcp_dns: bool) -> None:
        self._pid = pid
        # Its number could be another's where the kernel reaps, as it does when the caller ignores SIGCHLD.
        self._process = os.pidfd_open(pid)
        self._held = held
        self.tcp_dns = tcp_dns

    def close(self) -> None:
        """End the program, and wait until it is gone."""
        try:
            pidfd_send_signal(self._process, signals.SIGKILL)
        except ProcessLookupError:
            pass
        select.select([self._process], [], [])
        try:
            os.waitpid(self._pid, 0)
        except ChildProcessError:
            pass
        os.close(self._process)
        os.close(self._held)


def find(environment: Mapping[str, str], writable: Sequence[str]) -> tuple[Means, ...]:
    """Return what can connect sandboxes here, the best first; raises UnusableError when nothing can.

    It will run outside every sandbox: nothing is taken that lies in or below ``writable`` (real paths).
    """
    means = tuple(
        Means(name=name, program=program)
        for name in PROGRAMS
        if (program := _program(name, environment.get("PATH", PATH), writable))
    )
    if not means:
        raise UnusableError(
            "there is neither pasta nor slirp4netns on this machine",
            f"{_INSTALL} (or slirp4netns)",
        )
    _check_tun()
    _check_nameserver()
    return means


def _program(name: str, path: str, writable: Sequence[str]) -> str | None:
    for directory in path.split(":"):
        candidate = f"{directory}/{name}"
        if not directory.startswith("/") or not os.access(candidate, os.X_OK):
            continue
        try:
            real = resolve(candidate, writable)
        except CoopError:
            continue  # through a link that a sandbox can write
        if not any(inside(place, root) for place in (candidate, real) for root in writable):
            return candidate  # by its own name, which is what tells pasta from passt
    return None


def _check_tun() -> None:
    """Refuse where no tap device can be made.

    Opening the device makes none: Documentation/networking/tuntap.rst.
    """
    try:
        os.close(os.open(TUN, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        raise UnusableError(
            f"{TUN} cannot be opened, which pasta and slirp4netns need",
            f"as root: chmod 0666 {TUN} (in a container: start it with --device {TUN})",
        ) from None
    except OSError as error:
        raise UnusableError(
            f"{TUN} cannot be opened, which pasta and slirp4netns need: {error.strerror}",
            "as root: modprobe tun",
        ) from None


def _check_nameserver() -> None:
    """Refuse where pasta would find no server to forward to: it might ask whoever listens on the host.

    It takes what follows the last space of a line: conf.c, get_dns.
    """
    lines = dns.read(dns.RESOLV_CONF).splitlines()
    if not any(_is_ipv4(line.rpartition(" ")[2]) for line in lines if line.startswith("nameserver ")):
        raise UnusableError(
            f"{dns.RESOLV_CONF} names no server with an IPv4 address, which pasta and slirp4netns need",
            f'add a line "nameserver ADDRESS" to {dns.RESOLV_CONF}',
        )


def _is_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(part.isdecimal() and int(part) < 256 for part in parts)


def connect(means: Means, pid: int) -> Connection:
    """Connect the namespaces of process ``pid``; returns when the network is up inside.

    The calling process gets a process group of its own, which the kernel ends with it, and a mount
    namespace of its own, which sees what the host mounts later. Raises
    UnusableError when the program cannot do it; nothing is left then.
    """
    argv = _argv(means, pid)
    _part_from_the_hosts_mounts()
    # Of this process and the program: what the sandbox has it keep is no part of the sandbox's own memory.
    syscalls.limit_resource(syscalls.RLIMIT_DATA, _MEMORY)
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    held, lifeline = _lifeline()
    ready, ready_end = os.pipe2(os.O_CLOEXEC)
    said, said_end = os.pipe2(os.O_CLOEXEC)
    try:
        program = _spawn(means, argv, lifeline, ready_end, said_end)
        connection = Connection(program, held, tcp_dns=means.name != PASTA)
    except OSError as error:
        raise UnusableError(f"{means.program} cannot be started: {error.strerror}", None) from None
    finally:
        for descriptor in (lifeline, ready_end, said_end):
            os.close(descriptor)
    try:
        _await(means, ready, said)
    except BaseException:
        connection.close()
        raise
    finally:
        # Nobody reads what it says from here on.
        os.close(ready)
        os.close(said)
    return connection


def _part_from_the_hosts_mounts() -> None:
    """Have nothing reach the host that a program mounts or unmounts.

    To lock itself in, slirp4netns covers /tmp and unmounts all else, in a mount namespace of which it makes
    the root private and nothing below: sandbox.c, create_sandbox. Where mounts are shared, as systemd has
    them, root would lose them on the host. A namespace that belongs to another user namespace gives
    nothing back: mount_namespaces(7). So who may make none here need not.
    """
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
    except PermissionError:
        return
    try:
        syscalls.mount("none", "/", None, syscalls.MS_REC | syscalls.MS_SLAVE)
    except OSError as error:
        raise UnusableError(f"the host's mounts cannot be kept apart: {error.strerror}", None) from None


def _spawn(means: Means, argv: tuple[str, ...], lifeline: int, ready: int, said: int) -> int:
    """Start a program on three descriptors; return its number."""
    if means.name == PASTA:
        # pasta closes what is no stream, and takes it for a failure when SIGPIPE is ignored already,
        # as it is by Python: passt.c, main.
        streams, default = (lifeline, ready, said), signals.IGNORED_BY_PYTHON
    else:
        # slirp4netns prints on its output.
        streams, default = (lifeline, said, said), ()
        os.set_inheritable(ready, True)
        argv = (*argv[:1], f"--ready-fd={ready}", *argv[1:])
    actions = [(os.POSIX_SPAWN_DUP2, end, stream) for stream, end in enumerate(streams)]
    return os.posix_spawn(
        means.program, argv, {"LC_ALL": "C"}, file_actions=actions, setsigmask=(), setsigdef=default
    )


def _lifeline() -> tuple[int, int]:
    """Return both ends of a pipe: when the first is closed, the kernel kills the process group.

    A parent-death signal would not do: the programs enter the sandbox's user namespace, which
    clears it (prctl(2)). fcntl(2): F_SETOWN, F_SETSIG, O_ASYNC.
    """
    end, held = os.pipe2(os.O_CLOEXEC)
    fcntl.fcntl(end, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(end, _F_SETSIG, signals.SIGKILL)
    fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC)
    return held, end


def _argv(means: Means, pid: int) -> tuple[str, ...]:
    if means.name == PASTA:
        # Root would become nobody, who may not enter root's namespaces.
        user = (f"--runas={os.getuid()}:{os.getgid()}",) if os.geteuid() == 0 else ()
        namespaces = (f"--userns=/proc/{pid}/ns/user", f"--netns=/proc/{pid}/ns/net")
        return (means.program, *_PASTA, *user, *namespaces)
    with open(f"/proc/{pid}/uid_map", encoding="ascii") as file:
        if file.read().split()[:1] != ["0"]:
            raise UnusableError(
                "slirp4netns locks itself in as root of the sandbox, who is not there",
                f'session.user = "root", or {_INSTALL}',
            )
    return (means.program, *_SLIRP, str(pid), INTERFACE)


def _await(means: Means, ready: int, said: int) -> None:
    """Wait until a program is ready; raises UnusableError with what it says when it ends instead."""
    end = time.monotonic() + _READY
    text = b""
    streams = [ready, said]
    while True:
        readable, _, _ = select.select(streams, [], [], max(end - time.monotonic(), 0.0))
        if said in readable:
            piece = os.read(said, 512)
            text = (text + piece)[-_MOST_SAID:]
            if not piece:
                streams.remove(said)
        elif ready in readable and os.read(ready, 64):
            return
        elif ready in readable:
            raise UnusableError(*_explain(means, text))
        else:
            raise UnusableError(f"{means.name} did not connect the sandbox within {_READY:g} s", None)


def _explain(means: Means, said: bytes) -> tuple[str, str | None]:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if "syslog" not in line]
    unknown = next((line for line in lines if "unrecognized option" in line), None)
    if unknown is not None:
        return (
            f"{means.program} is too old: {unknown.strip()}",
            "install slirp4netns, or passt of 2024_08_21 or newer",
        )
    reason = next((line.strip() for line in reversed(lines) if line.strip()), "it gave no reason")
    return f"{means.name} cannot connect the sandbox: {reason}", None
