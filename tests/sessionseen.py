"""What can be seen on the host of sessions and their processes, by what the kernel and coop's files say."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.sandboxes import descendants

HELPER, MONITOR = "coop: helper of sessions", "coop: monitor of sessions"


def holder(path: Path) -> int | None:
    """Return the number of the process that has locked a file: proc_locks(5)."""
    try:
        number = path.stat().st_ino
    except OSError:
        return None
    for line in Path("/proc/locks").read_text().splitlines():
        found = re.search(r"FLOCK +\w+ +WRITE (\d+) \w+:\w+:(\d+) ", line)
        if found is not None and int(found[2]) == number:
            return int(found[1])
    return None


def of_session(directory: Path) -> list[int]:
    """Return the numbers of the processes of one session: PID 1, what is below, and what stays beside it."""
    first = first_of(directory)
    if first is None:
        return []
    monitor = monitor_of(first)
    around = [] if monitor is None else children(monitor)
    beside = [pid for pid in around if title(pid) == f"coop: session {directory.name}"]
    return [first, *descendants(first), *(pid for item in beside for pid in (item, *descendants(item)))]


def monitor_of(first: int) -> int | None:
    """Return the number of the monitor whose child a PID 1 is; None when one of both is gone."""
    return parent_of(first, MONITOR)


def parent_of(pid: int, called: str) -> int | None:
    """Return the parent of a process if that is what it should be: else that is gone, and init adopted."""
    found = _stat(pid)[1]
    return int(found) if found.isdigit() and title(int(found)) == called else None


def title(pid: int) -> str:
    """Return the name of a process with its arguments; nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").rstrip("\0")
    except OSError:
        return ""


def first_of(directory: Path) -> int | None:
    """Return the number of a session's PID 1, or of the keeper of one on an engine; None when it has ended.

    Another process may have its number then.
    """
    found = keeper(directory)
    return found if found is not None and (title(found) == "coop" or is_keeper(found)) else None


def is_keeper(pid: int) -> bool:
    """Tell whether a process keeps a session on an engine."""
    return "coopfile.session" in title(pid)


def keeper(directory: Path) -> int | None:
    """Return the number of the process with whose end a session that lives ends."""
    path = directory / "alive"
    try:
        told = path.read_text().split() if path.is_file() and holder(path) else []  # tests put pipes there
    except OSError:
        return None
    return int(told[0]) if told else None


def children(pid: int) -> list[int]:
    """Return the children of a process."""
    return [child for child in descendants(pid) if _stat(child)[1] == str(pid)]


def is_own(pid: int) -> bool:
    """Tell whether a process of a sandbox is coop's own: such are in the session that PID 1 is in."""
    return session_of(pid) == "1"


def session_of(pid: int) -> str | None:
    """Return the number of the session of a process, as the process counts; None when it is gone."""
    try:
        numbers = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    found = re.search(r"^NSsid:\t(.*)$", numbers, re.MULTILINE)
    return None if found is None else str(found[1].split()[-1])


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has; needs root."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory(pid: int) -> int:
    """Return the private memory of a process in bytes; needs root."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB$", text, re.MULTILINE)))


def locked(path: Path) -> Callable[[], None]:
    """Lock a file; return what lets it go."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return lambda: os.close(descriptor)


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ["", ""]
    return text[text.rindex(")") + 2 :].split()
