"""What `coop why` says is what the kernel does."""

from __future__ import annotations

import json
import os

import pytest

import coopfile
from coopfile.native.filtered import explain_call
from coopfile.native.seccomp import ABSENT, DENIED
from tests.sandboxes import Project

pytestmark = pytest.mark.native

COOPFILE = """
[files]
read = ["~/readable", "~/kept/given"]
write = ["~/writable"]
hide = ["**/.env*", "secret"]

[workspace]
protect = ["release.sh", "later/config"]
path = "host"

[session]
persist = ["kept"]
caches = ["npm"]

[env]
GIVEN = "yes"
"""

# One try per kind, by the shell and nothing else; `$1` is the target, with the sandbox's home for `~`.
TRIES = {
    "read": 'if [ -d "$1" ]; then ls "$1" >/dev/null; else cat "$1" >/dev/null; fi',
    "write": 'if [ -d "$1" ]; then : >"$1/.try" && rm "$1/.try"; else : >>"$1"; fi',
    "exec": 'command -v "$1" >/dev/null',
    "connect": 'exec 3<>"/dev/tcp/${1%:*}/${1##*:}"',
    "env": 'eval "[ -n \\"\\${$1+set}\\" ]"',
}

ACTIONS = [
    ("read", "file", True),
    ("write", "file", True),
    ("write", "new", True),
    ("write", ".", True),
    ("read", "release.sh", True),
    ("write", "release.sh", False),
    ("write", "later/config", False),
    ("read", ".env", False),
    ("write", ".env", False),
    ("read", "deep/.env.local", False),
    ("read", "secret/inside", False),
    ("write", "Coopfile", False),
    ("write", ".git/hooks/pre-commit", False),
    ("write", ".git/config", False),
    ("write", ".git/notes", True),
    ("write", ".vscode", False),
    ("read", "~/readable/file", True),
    ("write", "~/readable/file", False),
    ("write", "~/writable/file", True),
    ("write", "~/writable/new", True),
    ("read", "~/private", False),
    ("read", "/etc/shadow", False),
    ("read", "/etc/passwd", True),
    ("write", "/etc/passwd", False),
    ("read", "/usr/bin/env", True),
    ("write", "/usr/bin/env", False),
    ("write", "/usr", False),
    ("read", "/proc/self/status", True),
    ("read", "/proc/kcore", False),
    ("write", "/proc/sys/kernel/core_pattern", False),
    ("read", "/sys/kernel/notes", False),
    ("write", "/dev/null", True),
    ("write", "/tmp/new", True),
    ("write", "/var/tmp/new", True),
    ("read", "/root/.bashrc", False),
    ("read", "~/.claude", True),
    ("read", "~/.claude/mine", False),
    ("write", "~/.claude/new", True),
    ("write", "~/.claude", True),
    ("read", "~/kept/given", True),
    ("write", "~/kept/given", False),
    ("write", "~/kept/new", True),
    ("write", "~/.npm/_cacache", True),
    ("read", "/var/lib/dpkg/status", False),
    ("exec", "sh", True),
    ("connect", "127.0.0.1:9", None),
    ("connect", "10.255.255.1:80", False),
    ("env", "HOME", True),
    ("env", "COOP_SESSION", True),
    ("env", "npm_config_cache", True),
    ("env", "PIP_CACHE_DIR", False),
    ("env", "GIVEN", True),
    ("env", "SECRET_TOKEN", False),
]


def test_why_agrees_with_the_kernel(project: Project) -> None:
    """For each action the verdict, the expectation and what really happens are the same."""
    for name in ("file", "release.sh", ".env", "deep/.env.local", "secret/inside"):
        project.write(name, "x")
    project.mkdir(".git/hooks")
    project.write(".git/config", "")
    for name in ("readable/file", "writable/file", "private", ".claude/mine", "kept/given"):
        project.write(f"{project.home}/{name}", "x")
    project.coopfile(COOPFILE)
    disagreements = []
    for action, target, expected in ACTIONS:
        if expected is None:
            continue  # loopback is allowed, but nothing listens on it
        answer = json.loads(project.coop("why", "--json", action, target).out)
        tried = target.replace("~", "/root", 1) if target.startswith("~") else target
        result = project.run("bash", "-c", TRIES[action], "bash", tried)
        if not answer["allowed"] == expected == (result.status == 0):
            disagreements.append((action, target, expected, answer, result))
    assert disagreements == []


CALLS = """
import ctypes, errno, json, sys
libc = ctypes.CDLL(None, use_errno=True)
told = {}
for name, number in json.load(sys.stdin).items():
    ctypes.set_errno(0)
    failed = libc.syscall(number, -1, -1, -1, -1, -1, -1) == -1
    told[name] = not (failed and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS))
print(json.dumps(told))
"""


def test_why_agrees_with_the_filter(project: Project) -> None:
    """For calls that do harm nobody with such arguments the answer is what the kernel says."""
    column = 0 if os.uname().machine == "x86_64" else 1
    numbers = {
        name: found[column] for name, found in {**DENIED, **ABSENT}.items() if found[column] is not None
    }
    passing = {"getpid": (39, 172), "sched_yield": (24, 124), "close": (3, 57), "fcntl": (72, 25)}
    numbers.update({name: found[column] for name, found in passing.items()})
    result = project.run("/usr/bin/python3", "-I", "-c", CALLS, stdin=json.dumps(numbers).encode())
    assert result.status == 0, result
    plan = coopfile.compile()
    said = {name: explain_call(plan, name).allowed for name in numbers}
    assert said == json.loads(result.out) and len(said) > 60
