"""Run real commands under ``examples/Coopfile`` in a throw-away project, and try to get out.

Prints what was allowed and what was denied; exits 1 when the sandbox let something
through, or stopped what it should allow. Nothing stays behind.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from coopfile.cli.output import paint, safe, wants_color
from coopfile.record import Record

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COOP = os.path.join(os.path.dirname(sys.executable), "coop")
TIMEOUT = 60


class Attempt(Record):
    """Something that a sandboxed shell tries, and whether the Coopfile lets it."""

    what: str
    command: str
    allowed: bool


class Stage(Record):
    """The throw-away directory and what stands in it: the project, and a home with a key."""

    project: str
    home: str
    environment: Mapping[str, str]


def make_stage(scratch: str) -> Stage:
    """Lay out a small project with things worth stealing in and around it."""
    project, home = os.path.join(scratch, "project"), os.path.join(scratch, "home")
    files = {
        "project/release.sh": "echo release\n",
        "project/.env": "TOKEN=secret\n",
        "project/secrets/key": "secret\n",
        "project/.git/hooks/pre-commit": "#!/bin/sh\n",
        "home/.ssh/id_ed25519": "secret\n",
    }
    for name, text in files.items():
        path = os.path.join(scratch, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    shutil.copy(os.path.join(ROOT, "examples", "Coopfile"), project)
    own = {"HOME": home, "XDG_CACHE_HOME": f"{home}/.cache", "XDG_CONFIG_HOME": f"{home}/.config"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COOP_")}
    return Stage(project, home, {**kept, **own})


def coop(stage: Stage, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run coop in the project and return what it said."""
    return subprocess.run(
        [COOP, *arguments],
        cwd=stage.project,
        env=stage.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


def attempts(stage: Stage, port: int) -> tuple[Attempt, ...]:
    """Return what is tried, with paths and the port of this run."""
    python = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else "python3"
    connect = f'import socket; socket.create_connection(("127.0.0.1", {port}), 5)'
    return (
        Attempt("write a file in the workspace", "echo built > result.txt", True),
        Attempt("write a temporary file", "echo x > /tmp/x && echo y > ~/y", True),
        Attempt("read your SSH key", f"cat {stage.home}/.ssh/id_ed25519 ~/.ssh/id_ed25519", False),
        Attempt("read hidden files", "cat .env || cat secrets/key", False),
        Attempt("change a protected file", "echo evil >> release.sh", False),
        Attempt("plant a git hook", "echo evil > .git/hooks/pre-commit || echo evil > .git/config", False),
        Attempt("rewrite the Coopfile", "echo 'coop = 1' > Coopfile", False),
        Attempt("change the machine's programs", "echo evil > /usr/bin/coop-demo", False),
        Attempt("reach a server on this machine", f"{python} -c '{connect}'", False),
        Attempt("use 600 MB of memory", f"{python} -c 'b\"x\" * (600 << 20)'", False),
        Attempt("hold a capability", "grep 'Cap...:.*[1-9a-f]' /proc/self/status", False),
        Attempt("mount something", "mount -t tmpfs none /tmp", False),
    )


def untouched(stage: Stage) -> bool:
    """Tell whether the host still has what it had, and got the one file that it should get."""

    def read(name: str) -> str:
        with open(os.path.join(stage.project, name), encoding="utf-8") as file:
            return file.read()

    return (
        read("result.txt") == "built\n"
        and read("release.sh") == "echo release\n"
        and read(".git/hooks/pre-commit") == "#!/bin/sh\n"
        and not os.path.lexists(os.path.join(stage.project, ".git/config"))
        and sorted(os.listdir(stage.project))
        == [".env", ".git", "Coopfile", "release.sh", "result.txt", "secrets"]
    )


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a command said for its failure, short enough for one line here."""
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    # Most programs say first what is wrong; Python says it last.
    line = safe(lines[-1 if lines[0].startswith("Traceback") else 0])
    line = line.removeprefix("sh: ").removeprefix("1: ").removeprefix("cannot create ")
    return line if len(line) <= 60 else "..." + line[-57:]


def show_plan(stage: Stage) -> None:
    """Print the part of the plan that the Coopfile itself decides."""
    print("$ coop plan --explain | grep Coopfile:")
    for line in coop(stage, "plan", "--explain").stdout.splitlines():
        if "Coopfile:" in line:
            print(line)
    print()


def main() -> int:
    """Show the plan, run the commands, judge the outcome."""
    color = wants_color("auto", sys.stdout)
    with (
        tempfile.TemporaryDirectory(prefix="coop-demo-") as scratch,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        stage = make_stage(scratch)
        port = server.getsockname()[1]
        show_plan(stage)
        greeting = 'echo "$GREETING, uid $(id -u) in $(pwd):" *'
        print(f"$ coop run -- sh -c '{greeting}'")
        first = coop(stage, "run", "--", "sh", "-c", greeting)
        if first.returncode != 0:
            sys.stdout.write(first.stdout)
            sys.stderr.write(first.stderr)
            return 1
        print(first.stderr + first.stdout)
        failures = 0
        for attempt in attempts(stage, port):
            done = coop(stage, "run", "-q", "--", "sh", "-c", attempt.command)
            # 125 is coop's own failure, which proves nothing about the sandbox.
            allowed = done.returncode == 0
            right = allowed == attempt.allowed and done.returncode != 125
            failures += not right
            verdict = paint("allowed", "green", color) if allowed else paint("denied ", "yellow", color)
            note = "" if allowed else f"  {reason(done)}"
            wrong = "" if right else paint("  WRONG", "red", color)
            print(f"{verdict}  {attempt.what:<32}{paint(note, 'dim', color and bool(note))}{wrong}")
        if not untouched(stage):
            failures += 1
            print("WRONG: something changed outside of what the Coopfile allows")
    print()
    if failures:
        print(paint(f"{failures} outcomes were not as the Coopfile says", "red", color))
        return 1
    print("Every outcome is as examples/Coopfile says, and nothing stayed behind.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
