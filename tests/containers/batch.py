"""The scenario with most probes: all of ``inside`` in one sandbox, looked at from the host too."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from coopfile.plan.hosttools import DEVICES, DEVICES_OWN, ETC, ETC_OWN, PROC_MASKED
from tests.containers import inside
from tests.containers.backends import Backend
from tests.containers.scenarios import Verdicts, scenario
from tests.sandboxes import DEADLINE, Project

_SECRET = "unguessable-5519"
COOPFILE = """
limits.memory = "1g"
workspace.protect = ["release.sh", "locked", "deep/er/kept", "missing.cfg", "none/such/file"]
[files]
hide = ["**/.env*", "secrets"]
read = ["~/given-read", "~/given-file"]
write = ["~/given-write"]
[env]
PLAIN = "it's \\"so\\"\\n=$HOME `x`"
"""

_VALUES = {
    "NEWLINES": "\na\n\nb=1\n",
    "QUOTES": "'\"`$(id)\\",
    "EQUALS": "=a==b=",
    "UNICODE": "héllo 世界 🔒 \u202e\u0085\u2028",
    "CONTROL": "\x01\x1b[31m\t\r\x7f",
    "SPACES": "  two  words  ",
    "EMPTY": "",
    "LARGE": "x" * 100_000,
    "SECRET": _SECRET,
}
_ARGUMENTS = [
    "",
    " ",
    "a b",
    "--",
    "-x",
    "--rm",
    "'\"`$(id)\\",
    "\n",
    "héllo 世界",
    "$HOME",
    "*",
    "=",
    "{{.ID}}",
]
_PASSED = (
    "COOP_CREATED",
    "COOP_SESSION",
    "COOP_WORKSPACE",
    "HOME",
    "LANG",
    "LOGNAME",
    "PATH",
    "PWD",
    "SHELL",
    "TAR_OPTIONS",
    "TERM",
    "USER",
)
_MADE = {
    *("gift", "made", "made/link", "made/other", "made/script", "new-directory", "new-file"),
    *("new-file-0666", "set-id", "deep/newer"),
}


@scenario(
    owners_on_the_host="What the sandbox made in the workspace belongs, on the host, to the caller.",
    guards_on_the_host="On the host, what was hidden and protected is as before.",
    traces_in_the_workspace="Nothing is left in the workspace but what the command made.",
    secrets_in_command_lines="Values of host variables are in no command line on the host meanwhile.",
    secrets_in_logs="The engine keeps nothing that the command printed.",
    process_in_the_background="A process that the command left running is gone after the run.",
    containers="No container is left.",
)
def batch(where: Backend) -> Verdicts:
    """Run every probe of ``inside`` in one sandbox, and look at the host meanwhile and afterwards."""
    with listener(where) as listening, where.project() as project:
        text = COOPFILE + "".join(f'{name} = {{ host = "HOST_{name}" }}\n' for name in _VALUES)
        before = _furnish(project)
        project.coopfile(text)
        # In two parts, for coop's own processes have the facts in their command lines.
        mark = ("98765.", str(time.monotonic_ns()))
        facts = {
            "home": str(project.home),
            "workspace": str(project.directory),
            "other": str(where.actor.base),
            "inner": "inner",
            "mark": mark,
            "etc": [*(name.partition("/")[0] for name in ETC), *ETC_OWN],
            "devices": [*DEVICES, *DEVICES_OWN, "shm"],
            "masked": PROC_MASKED,
            "variables": [*_PASSED, "PLAIN", *_VALUES],
            "digests": {
                name: hashlib.sha256(os.fsencode(value)).hexdigest()
                for name, value in {**_VALUES, "PLAIN": 'it\'s "so"\n=$HOME `x`'}.items()
            },
            "arguments": [hashlib.sha256(word.encode()).hexdigest() for word in _ARGUMENTS],
            **listening,
        }
        given = {f"HOST_{name}": value for name, value in _VALUES.items()}
        process = project.popen(
            *("/usr/bin/python3", "-I", "-c", *inside.program(), json.dumps(facts), *_ARGUMENTS),
            options=where.options,
            environment=given,
            stdin=subprocess.PIPE,
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        seen = command_lines_with(_SECRET)
        logs = [where.engine.call("logs", name) for name in where.containers()] if where.engine else []
        try:
            _, errors = process.communicate(b"x", timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{where.name}: the run does not end, with verdicts {line!r}") from None
        assert process.returncode == 0 and line, (where.name, process.returncode, line, errors)
        verdicts: Verdicts = json.loads(line)
        verdicts["secrets in command lines"] = "nowhere" if not seen else f"in {len(seen)} processes"
        verdicts["secrets in logs"] = "nothing" if not any(log.stdout for log in logs) else "kept"
        verdicts["process in the background"] = "left" if command_lines_with("".join(mark)) else "gone"
        verdicts["containers"] = "none" if not where.containers() else "left"
        verdicts.update(_on_the_host(where, project, before))
        return verdicts


def _furnish(project: Project) -> set[str]:
    """Make what the probes look for, on the host; return the paths in the workspace."""
    project.write("plain.txt", "plain\n")
    for name in ("release.sh", "deep/er/kept", "locked/inner", ".git/HEAD", ".git/config"):
        project.write(name, f"{name}\n")
    project.write("deep/er/sibling")
    for name in (".env", "sub/.env.local", "secrets/inner"):
        project.write(name, _SECRET)
    root_id = project.write("root-id", Path(shutil.which("id") or "/usr/bin/id").read_bytes())
    if os.geteuid() == 0:
        os.chown(root_id, 0, 0)
    root_id.chmod(0o4755)
    for name in (".ssh/id_ed25519", "notes.txt", "given-read/file", "given-file", "given-write/file"):
        project.write(str(project.home / name), f"{name}\n")
    return set(project.tree())


def _on_the_host(where: Backend, project: Project, before: set[str]) -> Verdicts:
    tree = project.tree()
    made = {path: tree[path] for path in _MADE if path in tree}
    made["given-write/new"] = (0, *owner(project.home / "given-write/new"), b"")
    odd = {path for path, entry in made.items() if entry[1:3] != (where.actor.uid, where.actor.gid)}
    owners = f"not of {' '.join(sorted(odd))}" if odd else "the caller's"
    contents = {name: tree.get(name, (0, 0, 0, None))[3] for name in before}
    expected = {"release.sh", "deep/er/kept", "locked/inner", ".git/HEAD", ".git/config"}
    changed = {name for name in expected if contents[name] != f"{name}\n".encode()}
    hidden = (".env", "sub/.env.local", "secrets/inner")
    changed |= {name for name in hidden if contents[name] != _SECRET.encode()}
    strange = set(tree) - before - _MADE
    return {
        "owners on the host": owners
        if set(made) >= _MADE
        else "not there: " + " ".join(sorted(_MADE - set(made))),
        "guards on the host": " ".join(sorted(changed)) or "as before",
        "traces in the workspace": " ".join(sorted(strange)) or "none",
    }


def owner(path: Path) -> tuple[int, int]:
    """Return the user and the group of a file."""
    status = path.stat()
    return status.st_uid, status.st_gid


_LISTENER = """
import json, socket, sys
server = socket.create_server(("127.0.0.1", 0))
abstract = f"coop-test-{server.getsockname()[1]}"
unix = socket.socket(socket.AF_UNIX); unix.bind("\\0" + abstract); unix.listen()
print(json.dumps({"port": server.getsockname()[1], "abstract": abstract}), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def listener(where: Backend) -> Iterator[dict[str, Any]]:
    """Yield how to reach servers in the network namespace of the back end's host."""
    argv = [*where.actor.prefix, "/usr/bin/python3", "-I", "-S", "-c", _LISTENER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        assert process.stdin is not None
        process.stdin.close()
        process.wait(DEADLINE)


def command_lines_with(text: str) -> list[int]:
    """Return the processes of the host, all users', with a text in their arguments."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError):
                if text.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
    return found
