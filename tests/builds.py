"""Single steps of a build, run by an actor on a root file system of busybox."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes import DEADLINE, Project, Result

BUSYBOX = Path("/bin/busybox")
TOOLS = (
    *(
        "cat",
        "chgrp",
        "chmod",
        "chown",
        "chroot",
        "cp",
        "echo",
        "env",
        "grep",
        "id",
        "kill",
        "ln",
        "ls",
        "mkdir",
    ),
    *("mknod", "mv", "ps", "readlink", "rm", "setsid", "sh", "sleep", "stat", "su", "sync", "test", "touch"),
)

_DRIVER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from coopfile.errors import CoopError
from coopfile.native import building, preparing, runner
from coopfile.plan.model import Limits
asked = json.loads(sys.argv[2])
for name in ("argv", "layers"):
    asked[name] = tuple(asked[name])
asked["caches"] = tuple(tuple(cache) for cache in asked["caches"])
finish, timeout, ordinary = (asked.pop(name) for name in ("finish", "timeout", "ordinary"))
step = building.Step(limits=Limits(**asked.pop("limits")), **asked)
try:
    if finish:
        building.finish(step.upper)
        sys.exit(0)
    elif ordinary:
        launch = building._launch(step)
        outcome = runner.run(preparing.prepare(launch, (), (), step.layers))
    else:
        outcome = building.run(step, 1, timeout)
except CoopError as error:
    sys.exit(f"coop: {error.message} / {error.remedy}")
for note in outcome.notes:
    print(note, file=sys.stderr)
sys.exit(outcome.status)
"""


class Build:
    """A stage under way: ``base`` is the image, ``upper`` the stage's layer.

    ``scratch`` has its /tmp and the like; ``below`` are finished layers, the lowest first. ``wrap``
    goes in front of what builds.
    """

    def __init__(self, project: Project) -> None:
        self.project = project
        self.actor = project.actor
        self.base = self.actor.directory("base")
        self.below = [self.base]
        self.caches: list[tuple[str, str]] = []
        self.wrap: tuple[str, ...] = ()
        self._begin()

    def _begin(self) -> None:
        self.upper, self.work, self.scratch = (
            self.actor.directory(name) for name in ("upper", "work", "scratch")
        )

    def busybox(self) -> None:
        """Have the image hold busybox and nothing else but /etc."""
        for name in ("bin", "etc"):
            self.project.mkdir(self.base / name)
        shutil.copy(BUSYBOX, self.base / "bin/busybox")
        self.actor.own(self.base / "bin/busybox")
        for tool in TOOLS:
            self.link(f"bin/{tool}", "busybox")
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nother:x:7:7:::/bin/sh\n")

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link in the image."""
        (self.base / name).symlink_to(target)
        self.actor.own(self.base / name)

    def write(self, name: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the image."""
        self.project.write(str(self.base / name), text, mode)

    def next_stage(self) -> None:
        """Finish the layer, and go on in one above it."""
        finished = self.finish()
        assert finished.status == 0, finished
        self.below.append(self.upper)
        self._begin()

    def finish(self) -> Result:
        """Finish the layer."""
        return self._run(self.argv("", finish=True))

    def shell(self, script: str, **how: Any) -> Result:
        """Run a shell script as a step; takes fields of ``Step``, ``timeout``, and ``ordinary`` for a run."""
        return self._run(self.argv(script, **how))

    def output(self, script: str, **how: Any) -> str:
        """Run a shell script that has to succeed; return what it prints."""
        result = self.shell(script, **how)
        assert result.status == 0, result
        return result.out.rstrip("\n")

    def start(self, script: str, **how: Any) -> subprocess.Popen[bytes]:
        """Start a shell script as a step; ended with the test."""
        process = subprocess.Popen(
            self.argv(script, **how),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.project.environment,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        self.project._running.append(process)
        return process

    def _run(self, argv: Sequence[str]) -> Result:
        done = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=self.project.environment,
            timeout=5 * DEADLINE,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def argv(self, script: str, *, finish: bool = False, **how: Any) -> list[str]:
        """Return the command that runs a step."""
        limits = {"memory": 2 << 30, "cpus": None, "pids": 512, "tmp": 64 << 20, "timeout": 1, "output": 1}
        asked = {
            "argv": ["/bin/sh", "-c", "--", script],
            "environment": {},
            "layers": [os.path.realpath(path) for path in reversed(self.below)],
            "upper": os.path.realpath(self.upper),
            "work": os.path.realpath(self.work),
            "scratch": os.path.realpath(self.scratch),
            "caches": self.caches,
            "network": "none",
            "timeout": None,
            "ordinary": False,
            "finish": finish,
            **how,
        }
        asked["limits"] = {**limits, **how.get("limits", {})}
        library = str(Path(self.actor.coop[-1]).parent / "lib")
        driver = [self.actor.coop[0], "-I", "-c", _DRIVER, library, json.dumps(asked)]
        return [*self.actor.prefix, *self.wrap, *driver]


@pytest.fixture
def build(project: Project) -> Build:
    """Return a stage on an image of busybox."""
    made = Build(project)
    made.busybox()
    return made
