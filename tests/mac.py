"""coop without what Python has on Linux alone, as far as Linux can be like macOS.

``python3 -I -c TEXT LIBRARY VERB …`` with this file's text runs the command line of the package in LIBRARY,
``python`` instead of a verb what Python is given next.
"""

from __future__ import annotations

import _socket
import fcntl
import os
import resource
import select
import signal
import socket
import sys
import urllib.request  # noqa: F401 -- a real Mac has a module for it that is not here
from types import ModuleType

_LINUX_ONLY: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("O_PATH", "O_TMPFILE", "O_NOATIME", "O_DIRECT", "O_RSYNC", "pipe2", "memfd_create", "eventfd"),
        *("unshare", "setns", "splice", "getrandom", "copy_file_range", "sched_getaffinity", "pidfd_open"),
        *("getxattr", "setxattr", "listxattr", "removexattr", "setresuid", "setresgid", "getresuid"),
        *("getresgid", "posix_fadvise", "posix_fallocate", "P_PIDFD"),
    ),
    select: ("epoll", "EPOLL"),
    signal: ("sigtimedwait", "sigwaitinfo", "pidfd_send_signal", "SIGPWR", "SIGPOLL", "SIGRTM", "SIGSTKFLT"),
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_OFD_", "F_SETPIPE_SZ", "F_GETPIPE_SZ"),
    resource: ("prlimit",),
    **dict.fromkeys(
        (socket, _socket),
        (
            *("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "NETLINK_", "SOCK_CLOEXEC", "SOCK_NONBLOCK"),
            *("SO_PEERCRED", "SO_PASSCRED", "SO_MARK", "SO_DOMAIN", "SO_PROTOCOL", "SO_BINDTODEVICE"),
        ),
    ),
}


def main() -> int:
    """Take it all away, and run coop."""
    for module, beginnings in _LINUX_ONLY.items():
        for name in [name for name in vars(module) if name.startswith(beginnings)]:
            delattr(module, name)
    sys.platform = "darwin"
    sys.path.insert(0, sys.argv[1])
    if sys.argv[2] == "python":
        exec(sys.argv[3], {})
        return 0
    from coopfile.cli.main import main as coop

    return coop(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
