"""Who may ask for sessions: what a sandbox holds might reach the helper's socket.

That need not be a sandbox of coop's. Who is in namespaces of its own, or has given up privileges, as for a
filter of system calls or for Landlock's rules, has no use for this helper: ``helper.ask`` finds another one
for it.
"""

from __future__ import annotations

import os

from coopfile.native import syscalls, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

_NAMESPACES = ("user", "pid")


class Outside:
    """What this process is confined by, to be compared with others; it does not change."""

    def __init__(self) -> None:
        """Look. Raises OSError."""
        self._confinement = _confinement("self")
        self._namespaces = _namespaces("self")

    def has(self, connection: _socket.socket) -> bool:
        """Tell whether who has connected is this user's, and as free as this process."""
        if not wire.is_own(connection):
            return False
        pid, _ = wire.peer(connection)
        try:
            if _confinement(str(pid)) != self._confinement:
                return False
        except OSError:
            return False
        try:
            return _namespaces(str(pid)) == self._namespaces
        except PermissionError:
            return True  # it guards itself, as one does that runs a program that it may not read
        except OSError:
            return False


def _namespaces(pid: str) -> list[str]:
    return [os.readlink(f"/proc/{pid}/ns/{name}") for name in _NAMESPACES]


def _confinement(pid: str) -> list[object]:
    """Return what anybody may see of how a process is confined: proc_pid_status(5).

    ``NSpid`` has a number for each PID namespace, from that of /proc on inwards.
    """
    found: list[object] = []
    for line in syscalls.read_file(f"/proc/{pid}/status").splitlines():
        if line.startswith(b"NSpid:"):
            found.append(len(line.split()))
        elif line.startswith((b"NoNewPrivs:", b"Seccomp")):
            found.append(line)
    return found
