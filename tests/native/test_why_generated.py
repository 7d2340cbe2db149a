"""What `coop why` says is what the kernel does, for generated Coopfiles and all that can be tried with them.

Every file of the project and of the home can be told from every other, so that a verdict is about this file
of the host: reading it gives its text, running it prints that, writing it changes it on the host.
`COOP_WHY` is how many Coopfiles are tried as each actor.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coopfile.compiling import Compiled, Request, compile_project
from coopfile.errors import CoopError
from coopfile.plan.explain import Action, explain
from coopfile.plan.globs import compile_globs
from tests.sandboxes import Project

pytestmark = pytest.mark.native

EXAMPLES = int(os.environ.get("COOP_WHY", "6"))

IN_WORKSPACE = (
    *("", "a", "a/b", "a/b/c", "d", "d/e", "secret", "later"),
    *(".git", ".git/hooks", ".vscode", ".claude", ".claude/agents"),
)
IN_HOME = (
    *("a", "a/b", "a/b/c", "ab", ".ssh", ".config", ".config/git", ".config/app", ".docker"),
    *(".claude", "kept", "kept/in", ".npm", ".local/bin", ".local/other"),
)
FILES = ("f", "tool.key", ".env", ".env.local", "release.sh")
# What is not there, and what may not be made even so.
MISSING = (".envrc", "later/config", "new.key", ".git/config", "Coopfile.local", "missing")
HOME_MISSING = (".bashrc", ".config/systemd", "a/missing", ".profile")

HOST_PATHS = st.sampled_from(
    [
        *(
            "~/a",
            "~/a/b",
            "~/a/b/c",
            "~/ab",
            "~/a/f",
            "~/.ssh",
            "~/.config",
            "~/.config/git",
            "~/.config/app",
        ),
        *("~/kept", "~/kept/in", "~/.local", "~/.claude", "~/.npm", "~/.docker/f"),
        *("HOME/a", "HOME/a/b", "HOME/.config", "HOME/.config/git/f", "HOME/.ssh", "HOME/kept/in"),
        *("WORKSPACE/a", "WORKSPACE/a/b", "WORKSPACE/d/e/f", "WORKSPACE/.git", "WORKSPACE/.git/hooks"),
        "WORKSPACE/secret",
    ]
)


def some(items: Any, most: int = 3) -> st.SearchStrategy[list[str]]:
    """Return lists of some of some texts."""
    strategy = items if isinstance(items, st.SearchStrategy) else st.sampled_from(items)
    return st.lists(strategy, max_size=most, unique=True)


COOPFILES = st.fixed_dictionaries(
    {
        "files.read": some(HOST_PATHS),
        "files.write": some(HOST_PATHS),
        "files.hide": some(
            ("**/.env*", "secret", "*.key", "a/*", "d/e", "**/f", "a/b/c", "later/*", "**/[bc]", "missing"), 2
        ),
        "workspace.protect": some(("release.sh", "a/b", "later/config", "d/e/f", "missing", "secret/f"), 2),
        "workspace.path": st.sampled_from(["/workspace", "host", "/w/deep"]),
        "session.persist": some(("kept", ".config", "a/b"), 1),
        "session.caches": some(("npm", "pip"), 1),
        "session.user": st.sampled_from(["root", "me"]),
        "network.mode": st.sampled_from(["none", "none", "host", "proxy"]),
        "network.allow": some(("ADDRESS:PORT", "ADDRESS", "example.org", "10.0.0.1:PORT"), 2),
        "env": st.dictionaries(
            st.sampled_from(["GIVEN", "FROM", "LANG", "EDITOR"]), st.booleans(), max_size=2
        ),
        "limits.pids": st.sampled_from([64, 512]),
    }
)

VARIABLES = {
    **{"FROM": "x", "GIVEN": "x", "EDITOR": "x", "LANG": "C", "LC_ALL": "C", "TZ": "UTC"},
    **{"SECRET_TOKEN": "x", "npm_config_cache": "x"},
}
NAMES = (*VARIABLES, "COOP_SESSION", "HOME", "PIP_CACHE_DIR", "http_proxy")

# Tries each (kind, targets, token); a target of the host may have two names inside. Reading comes first.
SCRIPT = r"""
import json, os, socket, subprocess, sys
def tried(kind, targets, token):
    done = False
    for target in targets:
        target = target.replace("~", os.environ["HOME"], 1) if target.startswith("~") else target
        try:
            done = TRIES[kind](target, token) or done
        except (OSError, ValueError, subprocess.SubprocessError):
            pass
    return done
def read(target, token):
    if os.path.isdir(target):
        return "mark-" + token in os.listdir(target)
    return token in open(target).read()
def write(target, token):
    if os.path.isdir(target):
        target += "/made-" + token
    with open(target, "a") as file:
        file.write(token + "\n")
    return True
def execute(target, token):
    return token in subprocess.run([target], capture_output=True, text=True, timeout=20).stdout
def opens(target, token):
    if os.path.isdir(target):
        os.listdir(target)
    else:
        open(target, "rb").read(1)
    return True
def changes(target, token):
    if os.path.isdir(target):
        open(target + "/made", "w").close()
        os.unlink(target + "/made")
    else:
        open(target, "ab").close()
    return True
def connect(target, token):
    host, port = target.rsplit(":", 1)
    proxy = os.environ.get("http_proxy")
    with socket.create_connection(("127.0.0.1", 3128) if proxy else (host, int(port)), 20) as made:
        if proxy:
            made.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        got = b""
        while b"hello" not in got and (more := made.recv(100)):
            got += more
        return b"hello" in got
TRIES = {"read": read, "write": write, "exec": execute, "opens": opens, "changes": changes,
         "connect": connect, "env": lambda name, token: name in os.environ}
sys.stdout.write(json.dumps([tried(*one) for one in json.load(sys.stdin)]))
"""

SYSTEM = (
    *(("read", path) for path in ("/etc/passwd", "/etc/shadow", "/usr/bin/env", "/var/lib/dpkg/status")),
    *(("read", path) for path in ("/proc/self/status", "/proc/kcore", "/sys/kernel/notes", "/boot", "/tmp")),
    *(
        ("write", path)
        for path in ("/etc/passwd", "/usr", "/usr/bin/env", "/dev/null", "/tmp/n", "/var/tmp/n")
    ),
    *(
        ("write", path)
        for path in ("/proc/sys/kernel/core_pattern", "/run/n", "/dev/shm/n", "/root/../etc/n")
    ),
)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    """Yield where this machine is reached, but not by its loopback: somebody says hello there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        host = probe.getsockname()[0]
    with socket.create_server((host, 0)) as server:
        import threading

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"hello")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[:2]
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


class House:
    """The files of a project and of a home, each with a token of its own, by its path on the host."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.tokens: dict[str, str] = {}

    def build(self) -> None:
        """Make everything anew."""
        for top, keep in ((self.project.directory, ()), (self.project.home, (".local", ".cache"))):
            for name in os.listdir(top):
                if name not in keep:  # coop's own
                    path = top / name
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        for name in ("bin", "other"):
            shutil.rmtree(self.project.home / ".local" / name, ignore_errors=True)
        self.tokens.clear()
        for top, directories in ((self.project.directory, IN_WORKSPACE), (self.project.home, IN_HOME)):
            for name in directories:
                directory = top / name
                self._add(directory)
                self.project.write(f"{directory}/mark-{self.tokens[str(directory)]}", "")
                for file in FILES:
                    self._add(directory / file)
                    text = f"#!/bin/sh\necho {self.tokens[str(directory / file)]}\n"
                    self.project.write(str(directory / file), text, 0o755)

    def _add(self, path: Path) -> None:
        self.tokens[str(path)] = f"token{len(self.tokens)}x"

    def actions(self) -> Iterator[tuple[str, str, str]]:
        """Yield verb, path and token of what can be tried: reading first, for writing changes things."""
        for verb in ("read", "exec", "write"):
            for path, token in self.tokens.items():
                if verb != "exec" or not os.path.isdir(path):
                    yield verb, path, token
        for top, names in ((self.project.directory, MISSING), (self.project.home, HOME_MISSING)):
            for name in names:
                yield "write", str(top / name), f"new-{name.replace('/', '-')}-x"

    def was_written(self, path: str, token: str) -> bool:
        """Tell whether what was tried has come to the host."""
        try:
            if os.path.isdir(path):
                return os.path.exists(f"{path}/made-{token}")
            text = Path(path).read_text()
        except FileNotFoundError:
            return False
        return text.count(token) > (0 if token.startswith("new-") else 1)


class Case:
    """One Coopfile in one house: what is said of it, and what is so."""

    def __init__(self, house: House, address: tuple[str, int], values: dict[str, Any]) -> None:
        self.project = project = house.project
        self.house = house
        self.host, self.port = address
        places = {"HOME": str(project.home), "WORKSPACE": str(project.directory)}
        places.update(ADDRESS=self.host, PORT=str(self.port))
        self.text = "".join(f"{key} = {_toml(value, places)}\n" for key, value in values.items())

    def compiled(self) -> Compiled:
        """Compile it. Raises CoopError."""
        place = self.project.home / ".config-of-coop"
        self.project.write(f"{place}/coop/Coopfile", self.text)
        self.project.write("Coopfile", "")
        self.project.environment.update(XDG_CONFIG_HOME=str(place), **VARIABLES)
        with pytest.MonkeyPatch.context() as patch:  # whoever runs the tests asks as the actor does
            patch.setattr(os, "geteuid", lambda: self.project.actor.uid)
            return compile_project(Request(str(self.project.directory)), self.project.environment)

    def questions(self, compiled: Compiled) -> list[tuple[str, str, str, str]]:
        """Return kind, verb, target and token of everything that is tried."""
        own = [
            f"{self.project.home}/{item}" for item in (*compiled.plan.session.persist, ".npm", ".cache/pip")
        ]
        hides = compile_globs(compiled.plan.files.hide)
        root = f"{self.project.directory}/"

        def is_hidden(path: str) -> bool:
            parts = path.removeprefix(root).split("/")
            outer = ["/".join(parts[: end + 1]) for end in range(len(parts))]
            return any(item in compiled.plan.files.hide or hides(item) for item in outer)

        found = []
        for verb, path, token in self.house.actions():
            if path in own:
                continue  # the sandbox has one of its own there, and that is what is answered for
            if verb == "write" and any(path.startswith(f"{item}/") for item in own):
                continue
            if is_hidden(path) and token.startswith("new-"):
                continue  # what is hidden is what was there: a command may make something of that name
            found.append((verb, verb, path, token))
        found += [("opens" if verb == "read" else "changes", verb, path, "") for verb, path in SYSTEM]
        found += [("env", "env", name, "") for name in NAMES]
        found += [("connect", "connect", f"{self.host}:{self.port}", "")]
        return found

    def inside(self, path: str, compiled: Compiled) -> list[str]:
        """Return the names that a path of the host may have inside."""
        home, root = str(self.project.home), str(self.project.directory)
        names = [path]
        if path == home or path.startswith(home + "/"):
            names.append("~" + path[len(home) :])
        if (path == root or path.startswith(root + "/")) and compiled.plan.workspace.path != "host":
            names.append(compiled.plan.workspace.path + path[len(root) :])
        return names

    def disagreements(self) -> tuple[int, list[str]]:
        """Return how many things were tried, and of which the answer was wrong; none if nothing may run."""
        self.house.build()
        try:
            compiled = self.compiled()
        except CoopError:
            return 0, []
        asked = self.questions(compiled)
        tries = [(kind, self.inside(path, compiled), token) for kind, _, path, token in asked]
        command = ("/usr/bin/python3", "-I", "-c", SCRIPT)
        result = self.project.run(*command, stdin=json.dumps(tries).encode())
        if result.status == 125:
            assert "error:" in result.err and "Traceback" not in result.err, result
            return 0, []
        assert result.status == 0, (self.text, result)
        wrong = []
        for (kind, verb, target, token), happened in zip(asked, json.loads(result.out), strict=True):
            if kind == "write":
                happened = self.house.was_written(target, token)
            verdict = explain(
                compiled.plan,
                Action(verb, target),
                home=str(self.project.home),
                workspace=str(self.project.directory),
                settings=compiled.settings,
            )
            if verdict.allowed != happened:
                said = "allowed" if verdict.allowed else "denied"
                wrong.append(f"{verb} {target}: {said} ({verdict.key}: {verdict.reason}), which is not so")
        return len(asked), wrong


def _toml(value: Any, places: dict[str, str]) -> str:
    if isinstance(value, dict):
        pairs = [
            f"{name} = " + (f'{{ host = "{name}" }}' if host else '"text"') for name, host in value.items()
        ]
        return "{ " + ", ".join(pairs) + " }"
    text = json.dumps(value)
    for name, place in places.items():
        text = text.replace(name, place)
    return text


def test_why_agrees_with_the_kernel_for_generated_coopfiles(
    project: Project, address: tuple[str, int], record_property: Any
) -> None:
    """Of thousands of things tried under generated Coopfiles, none goes otherwise than `coop why` says."""
    house = House(project)
    tried, ran = 0, 0
    wrong: list[str] = []

    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(COOPFILES)
    def every(values: dict[str, Any]) -> None:
        nonlocal tried, ran
        case = Case(house, address, values)
        count, found = case.disagreements()
        tried, ran = tried + count, ran + bool(count)
        wrong.extend(f"{line}\n{case.text}" for line in found)

    every()
    told = f"{ran} of {EXAMPLES} Coopfiles run, {tried} actions tried, {len(wrong)} disagreements"
    record_property("told", f"coop why and the kernel, as {project.actor.name}: {told}")
    assert not wrong, f"{told}:\n" + "\n".join(wrong[:20])
    assert ran > EXAMPLES // 3, told
