"""Entering namespaces, and what the kernel or the distribution says against it."""

from __future__ import annotations

import fcntl
import os
from os import getegid, geteuid, setgroups

from coopfile.errors import CoopError
from coopfile.native import syscalls
from coopfile.native.syscalls import detached_mount, unshare, write_file

# What has to be there before the others: users and processes.
FIRST = syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWPID
# Mounts, host name, IPC and control groups.
OTHERS = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWCGROUP
_APPARMOR = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
_DEBIAN = "/proc/sys/kernel/unprivileged_userns_clone"
_MOST = "/proc/sys/user/max_user_namespaces"


class NamespaceError(CoopError):
    """The kernel refuses a namespace; ``cause`` is its errno."""

    def __init__(self, message: str, remedy: str | None, cause: int) -> None:
        super().__init__(message, remedy)
        self.cause = cause


def check_machine() -> None:
    """Raise CoopError if this processor's system calls are not known."""
    if not syscalls.supported_machine():
        raise CoopError(f"the native back end does not know this processor ({syscalls.MACHINE})")


def enter_user_namespace(uid: int, gid: int) -> None:
    """Enter new user and PID namespaces; ``uid`` and ``gid`` inside are the caller outside.

    Only this one id is mapped, which the kernel allows without privileges when
    setgroups is given up: user_namespaces(7). Children are in the PID namespace.
    """
    outer_uid, outer_gid = geteuid(), getegid()
    if outer_uid == 0:
        leave_groups()
    try:
        unshare(FIRST)
        _map_ids("self", uid, outer_uid, gid, outer_gid)
    except OSError as error:
        raise explain(error) from None


def map_ids(pid: int, uid: int, gid: int) -> None:
    """Do from outside what ``enter_user_namespace`` does, for a process that was made in new namespaces."""
    try:
        _map_ids(str(pid), uid, geteuid(), gid, getegid())
    except OSError as error:
        raise explain(error) from None


def _map_ids(process: str, uid: int, outer_uid: int, gid: int, outer_gid: int) -> None:
    write_file(f"/proc/{process}/setgroups", "deny")
    write_file(f"/proc/{process}/uid_map", f"{uid} {outer_uid} 1\n")
    write_file(f"/proc/{process}/gid_map", f"{gid} {outer_gid} 1\n")


def leave_groups() -> None:
    """Give up root's supplementary groups, which would outlast its capabilities.

    Root of a namespace that an unprivileged user made cannot: the groups are that user's own.
    """
    try:
        setgroups([])
    except PermissionError:
        try:
            with open("/proc/self/setgroups", encoding="ascii") as file:
                forbidden = file.read().strip() == "deny"
        except OSError:
            forbidden = False
        if not forbidden:
            raise CoopError(
                "root's supplementary groups cannot be given up here, and would reach into the sandbox",
                "give coop the capability CAP_SETGID, or start it as another user",
            ) from None


def others(*, network: bool) -> int:
    """Return the flags of those that ``enter_other_namespaces`` enters."""
    return OTHERS | (syscalls.CLONE_NEWNET if network else 0)


def enter_other_namespaces(*, network: bool) -> None:
    """Enter new mount, host name, IPC and cgroup namespaces, and a network one if asked for."""
    _enter(others(network=network))


def enter_network_namespace() -> None:
    """Enter a new network namespace, whose loopback is up. For the kernel it is more work than all others."""
    _enter(syscalls.CLONE_NEWNET)
    raise_loopback()


def _enter(flags: int) -> None:
    try:
        unshare(flags)
    except OSError as error:
        raise explain(error) from None


def processes() -> int:
    """Return a detached mount that shows the processes of the PID namespace that this process is in."""
    attributes = syscalls.MOUNT_ATTR_NOSUID | syscalls.MOUNT_ATTR_NODEV | syscalls.MOUNT_ATTR_NOEXEC
    try:
        # The kernel allows it as long as the host's own is there: mount_too_revealing.
        return detached_mount("proc", attributes)
    except PermissionError:
        raise CoopError(
            "the kernel refuses to mount /proc: parts of the host's own are hidden, as in containers",
            "run the container with an unmasked /proc (docker: --security-opt systempaths=unconfined; "
            "podman: --security-opt unmask=ALL)",
        ) from None


def explain(error: OSError) -> NamespaceError:
    """Return what forbids namespaces here, with the remedy, from the switches that exist."""
    cause = error.errno or 0
    if _setting(_APPARMOR) == 1 and os.geteuid() != 0:
        return NamespaceError(
            "AppArmor keeps programs without a profile from using user namespaces (Ubuntu 23.10 and newer)",
            "as root: printf 'abi <abi/4.0>,\\nprofile coop %s flags=(unconfined) { userns, }\\n' "
            f'"$(readlink -f {os.path.realpath("/proc/self/exe")})" > /etc/apparmor.d/coop && '
            "apparmor_parser -r /etc/apparmor.d/coop",
            cause,
        )
    if _setting(_DEBIAN) == 0:
        return NamespaceError(
            "this kernel does not let unprivileged users make user namespaces",
            "as root: sysctl -w kernel.unprivileged_userns_clone=1 (and in /etc/sysctl.d to keep it)",
            cause,
        )
    if _setting(_MOST) == 0:
        return NamespaceError(
            "user namespaces are switched off",
            "as root: sysctl -w user.max_user_namespaces=10000 (and in /etc/sysctl.d to keep it)",
            cause,
        )
    remedy = (
        "if this is a container, let it make namespaces and mounts "
        "(docker: --security-opt seccomp=unconfined --security-opt systempaths=unconfined)"
    )
    return NamespaceError(
        f"the kernel refuses new namespaces ({error.filename}: {error.strerror})", remedy, cause
    )


def _setting(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def raise_loopback() -> None:
    """Bring the loopback interface of this network namespace up: netdevice(7)."""
    descriptor = syscalls.datagram_socket()
    request = b"lo".ljust(16, b"\0") + (0x1 | 0x40).to_bytes(2, "little") + bytes(22)  # IFF_UP, IFF_RUNNING
    fcntl.ioctl(descriptor, 0x8914, request)  # SIOCSIFFLAGS
    os.close(descriptor)
