"""coop without what Python does not have on Windows, as far as Linux can be like that.

``python3 -I -c TEXT LIBRARY VERB …`` with this file's text runs the command line of the package in LIBRARY,
``python`` instead of a verb what Python is given next.
Paths stay those of Linux.
"""

from __future__ import annotations

# What the library makes of the system it makes when it is imported: before that is taken away.
import _ctypes
import argparse
import hashlib
import importlib.metadata
import inspect
import json
import multiprocessing
import os
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import ModuleType

_LIBRARY = (argparse, hashlib, importlib.metadata, inspect, json, multiprocessing, shutil, ssl, subprocess)
_LIBRARY_TOO = (tempfile, threading)

_MODULES = ("curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty")
_UNIX_ONLY: dict[ModuleType, tuple[str, ...]] = {
    os: (
        *("O_ACCMODE", "O_ASYNC", "O_CLOEXEC", "O_DIRECT", "O_DSYNC", "O_LARGEFILE", "O_NDELAY", "O_NOATIME"),
        *("O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_PATH", "O_RSYNC", "O_SYNC", "O_TMPFILE", "P_ALL"),
        *("P_PGID", "P_PID", "SEEK_DATA", "WNOHANG", "WEXITED", "WNOWAIT", "WUNTRACED", "WIF", "WTERMSIG"),
        *("WSTOPSIG", "WEXITSTATUS", "chown", "chroot", "confstr", "copy_file_range", "ctermid", "eventfd"),
        *("fchdir", "fchmod", "fchown", "fork", "fstatvfs", "fwalk", "getegid", "geteuid", "getgid"),
        *("getgroup", "getloadavg", "getpg", "getpriority", "getrandom", "getres", "getsid", "getuid"),
        *("getxattr", "initgroups", "killpg", "lchown", "listxattr", "lockf", "major", "makedev", "memfd_"),
        *("minor", "mkfifo", "mknod", "nice", "openpty", "pidfd_open", "pipe2", "posix_", "pread", "pwrite"),
        *("readv", "removexattr", "sched_", "sendfile", "setegid", "seteuid", "setgid", "setgroups"),
        *("setns", "setpgid", "setpriority", "setre", "setsid", "setuid", "setxattr", "splice", "statvfs"),
        *("sync", "sysconf", "tcgetpgrp", "tcsetpgrp", "ttyname", "uname", "unshare", "wait", "writev"),
    ),
    _ctypes: ("dlclose", "dlopen", "dlsym"),
    select: ("EPOLL", "POLL", "epoll", "poll"),
    signal: (
        *("SIGALRM", "SIGBUS", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGIO", "SIGKILL", "SIGPIPE", "SIGPOLL"),
        *("SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTM", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTRAP", "SIGTSTP"),
        *("SIGTT", "SIGURG", "SIGUSR", "SIGVTALRM", "SIGWINCH", "SIGX", "SIG_BLOCK", "SIG_SETMASK"),
        *("SIG_UNBLOCK", "alarm", "pause", "pidfd_", "pthread_", "setitimer", "sigpending", "sigtimedwait"),
        *("sigwait",),
    ),
    socket: (
        *("AF_NETLINK", "AF_PACKET", "AF_UNIX", "AF_VSOCK", "CMSG_", "NETLINK_", "SCM_", "SOCK_CLOEXEC"),
        *("SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_DOMAIN", "SO_MARK", "SO_PASSCRED", "SO_PEERCRED"),
        *("SO_PROTOCOL", "SO_REUSEPORT", "recv_fds", "send_fds"),
    ),
}


class _Absent:
    """Finds nothing of what is not there."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in _MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main() -> int:
    """Take it all away, and run coop."""
    for name in _MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Absent())
    for module, beginnings in _UNIX_ONLY.items():
        for name in [name for name in vars(module) if name.startswith(beginnings)]:
            delattr(module, name)
    sys.platform = "win32"
    sys.path.insert(0, sys.argv[1])
    if sys.argv[2] == "python":
        exec(sys.argv[3], {})
        return 0
    from coopfile.cli.main import main as coop

    return coop(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
