"""A stand-in for Apple's ``container`` command line: it checks every argv, and runs processes for real.

A container is a PID namespace of this machine, with the host's files: what a session does to it is what
counts here, not what it keeps from it. Every call is written down, with what was wrong with it.

Run as a program: ``standin.py DIRECTORY CHECKOUT ARGUMENT…``; DIRECTORY is where it keeps its state.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

_SPACES = ("--user", "--pid", "--mount")


class _Real(Container[str]):
    """Paths of this machine."""

    def __init__(self, directories: bool) -> None:
        self._directories = directories

    def __contains__(self, path: object) -> bool:
        text = str(path)
        return os.path.isdir(text) if self._directories else os.path.isfile(text)


class StandIn:
    """What the command line does."""

    def __init__(self, directory: Path, call: Any) -> None:
        self._directory = directory
        self._call = call

    def do(self) -> int:
        """Do what is asked; return the exit status."""
        return int(getattr(self, f"_{self._call.verb.replace(' ', '_')}")())

    def _image_inspect(self) -> int:
        return 0 if (self._directory / "image").exists() else 1

    def _image_pull(self) -> int:
        (self._directory / "image").write_text(self._call.subject)
        return 0

    def _create(self) -> int:
        name = self._call.one("name")
        if self._path(name).exists():
            sys.stderr.write(f'Error: container with id "{name}" already exists\n')
            return 1
        known = {
            "process": self._call.process(),
            "environment": self._call.environment,
            "directory": self._call.one("workdir"),
            "labels": dict(self._call.values.get("label", ())),
            "pid": None,
        }
        self._path(name).write_text(json.dumps(known))
        print(name)
        return 0

    def _start(self) -> int:
        known = self._known()
        assert {"attach", "interactive"} <= self._call.flags
        unshare = ["unshare", *_SPACES, "--map-root-user", "--fork", "--kill-child", "--mount-proc"]
        process = subprocess.Popen(
            [*unshare, *known["process"]], env=self._environment(known), cwd="/", start_new_session=True
        )
        self._path(self._call.subject).write_text(json.dumps({**known, "pid": process.pid}))
        return process.wait()

    def _exec(self) -> int:
        known = self._known()
        if known["pid"] is None or not os.path.exists(f"/proc/{known['pid']}"):
            sys.stderr.write("Error: container is not running\n")
            return 1
        below = Path(f"/proc/{known['pid']}/task/{known['pid']}/children").read_text().split()
        # It stops with what it has started, and nobody would have it go on when this process is killed.
        enter = ["setpriv", "--pdeathsig", "KILL", "nsenter", "--target", below[0], *_SPACES]
        enter += ["--preserve-credentials", f"--wd={os.getcwd()}"]
        given = {**known["environment"], **self._call.environment}
        environment = self._environment({**known, "environment": given})
        for path in self._call.values.get("env-file", ()):
            for line in Path(path).read_text().splitlines():
                name, _, value = line.partition("=")
                environment[name] = value
        stdin = None if "interactive" in self._call.flags else subprocess.DEVNULL
        if "tty" in self._call.flags:
            assert os.isatty(0)
        done = subprocess.run([*enter, *self._call.command], env=environment, stdin=stdin, check=False)
        return done.returncode if done.returncode >= 0 else 128 - done.returncode

    def _list(self) -> int:
        found = []
        for path in sorted(self._directory.glob("*.json")):
            known = json.loads(path.read_text())
            running = known["pid"] is not None and os.path.exists(f"/proc/{known['pid']}")
            configuration = {"id": path.stem, "labels": known["labels"]}
            state = "running" if running else "stopped"
            found.append({"id": path.stem, "configuration": configuration, "status": {"state": state}})
        print(json.dumps(found))
        return 0

    def _delete(self) -> int:
        known = self._known()
        if known["pid"] is not None:
            try:
                os.killpg(known["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._path(self._call.subject).unlink()
        return 0

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}.json"

    def _known(self) -> dict[str, Any]:
        path = self._path(self._call.subject)
        if not path.exists():
            sys.stderr.write("Error: notFound\n")
            sys.exit(1)
        known: dict[str, Any] = json.loads(path.read_text())
        return known

    def _environment(self, known: dict[str, Any]) -> dict[str, str]:
        given = {"PATH": "/usr/bin:/bin"}
        for name, value in known["environment"].items():
            if value is not None:
                given[name] = value
            elif name in os.environ:
                given[name] = os.environ[name]
        return given


def main(directory: Path, checkout: str, arguments: list[str]) -> int:
    """Check the argv, write it down, and do what it says."""
    sys.path.insert(0, checkout)
    from tests.unit.render.apple.checker import RefusedError, World, read

    with (directory / "log").open("a") as log:
        try:
            call = read(["container", *arguments], World(_Real(True), _Real(False)))  # type: ignore[arg-type]
        except RefusedError as error:
            log.write(json.dumps({"argv": arguments, "refused": str(error)}) + "\n")
            sys.stderr.write(f"Error: {error}\n")
            return 64
        log.write(json.dumps({"argv": arguments, "refused": None}) + "\n")
    return StandIn(directory, call).do()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
