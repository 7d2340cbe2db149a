"""Sandboxes on a root file system of layers: what is there, and that nothing of it is ever written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from coopfile.rootfs.tree import fingerprint
from tests.sandboxes import Project, Result

BUSYBOX = "/bin/busybox"
TOOLS = ("cat", "chmod", "env", "id", "ln", "ls", "mkdir", "mv", "readlink", "rm", "sh", "stat", "touch")

# What `coop run` will do when it knows which layers a plan has.
RUN = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
from coopfile.compiling import Request, compile_project
from coopfile.errors import CoopError
from coopfile.launching import this_host
from coopfile.native import preparing, runner
from coopfile.plan.bind import bind
asked = json.loads(sys.argv[2])
compiled = compile_project(Request(asked["project"], assignments=('base.image="x"', *asked["settings"])))
launch = bind(compiled.plan, this_host(compiled.project, os.environ), tuple(asked["argv"]))
launch = launch.replace(environment={"PATH": "/bin", **launch.environment})
try:
    outcome = runner.run(preparing.prepare(launch, (), (), tuple(asked["layers"])))
except CoopError as error:
    sys.exit(f"coop: {error.message}")
sys.exit(outcome.status)
"""

pytestmark = pytest.mark.skipif(not Path(BUSYBOX).exists(), reason="busybox-static is not installed")


class Image:
    """A root file system of busybox in a directory of the actor's, and an empty layer above it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.base = project.actor.directory("base")
        self.upper = project.actor.directory("upper")
        for name in ("bin", "etc"):
            project.mkdir(self.base / name)
        shutil.copy(BUSYBOX, self.base / "bin/busybox")
        project.actor.own(self.base / "bin/busybox")
        for tool in TOOLS:
            project.actor.own(self.link(f"bin/{tool}", "busybox"))

    def link(self, name: str, target: str) -> Path:
        """Make a symbolic link in the base; return its path."""
        path = self.base / name
        path.symlink_to(target)
        return self.project.actor.own(path)

    def shell(self, script: str, *settings: str) -> Result:
        """Run a shell script on the two layers."""
        asked: dict[str, Any] = {
            "project": str(self.project.directory),
            "settings": settings,
            "argv": ["sh", "-c", script],
            "layers": [str(self.upper), str(self.base)],
        }
        actor = self.project.actor
        library = str(Path(actor.coop[-1]).parent / "lib")
        return actor.run(
            actor.coop[0],
            "-I",
            "-c",
            RUN,
            library,
            json.dumps(asked),
            environment=self.project.environment,
        )

    def output(self, script: str, *settings: str) -> str:
        """Run a shell script that has to succeed; return what it prints."""
        result = self.shell(script, *settings)
        assert result.status == 0, result
        return result.out.rstrip("\n")


@pytest.fixture
def image(project: Project) -> Image:
    """Return an image of the actor's."""
    return Image(project)


def test_tools_and_devices(image: Image) -> None:
    """The layers' programs run; /proc, /dev and /tmp are the sandbox's own."""
    assert image.output("id -u") == "0"
    assert image.output("cat /proc/1/cmdline").startswith("coop")
    assert image.output("echo x > /dev/null; echo y > /tmp/f; cat /tmp/f; readlink /dev/fd").split() == [
        "y",
        "/proc/self/fd",
    ]
    assert image.output("ls /").split() == ["bin", "dev", "etc", "proc", "root", "tmp", "workspace"]


def test_higher_layers_win(image: Image) -> None:
    """A file of the higher layer covers the lower one's."""
    image.project.write(str(image.base / "etc/x"), "low")
    image.project.write(str(image.base / "etc/y"), "low")
    image.project.write(str(image.upper / "etc/x"), "high")
    assert image.output("cat /etc/x /etc/y") == "highlow"


def test_writes_are_thrown_away(image: Image) -> None:
    """Everything in the root file system can be written, and nothing of it reaches a layer."""
    before = fingerprint(str(image.base)), fingerprint(str(image.upper))
    script = (
        "rm /bin/env; mv /bin/ln /bin/nl; chmod 700 /etc; echo x > /etc/new; rm -r /etc; mkdir /etc; ls /etc"
    )
    assert image.output(script) == ""
    assert (fingerprint(str(image.base)), fingerprint(str(image.upper))) == before
    assert image.output("ls /etc; ls /bin/env").split() == [
        "group",
        "hostname",
        "hosts",
        "passwd",
        "/bin/env",
    ]


def test_limits_tmp_holds_for_all_that_is_written(image: Image) -> None:
    """What is thrown away has one bound, wherever it is written."""
    result = image.shell("cat /dev/zero > /etc/full", 'limits.tmp="1m"')
    assert result.status != 0 and "No space left" in result.err


def test_the_user_is_known(image: Image) -> None:
    """session.user = "me" finds itself in the image's accounts, which stay as they are beside it."""
    image.project.write(str(image.base / "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:\n")
    found = image.output('cat /etc/passwd; stat -c "%u %a" "$HOME"', 'session.user="me"').splitlines()
    uid = image.project.actor.uid
    if uid:
        assert found[0].startswith(f"tester:x:{uid}:") and found[-1] == f"{uid} 700"
    assert "root:x:0:0:root:/root:/bin/sh" in found and "daemon:x:1:1::/:" in found


@pytest.mark.parametrize("name", ["etc", "tmp", "workspace", "proc", "dev", "root"])
def test_links_of_an_image_lead_into_the_image(image: Image, project: Project, name: str) -> None:
    """A hostile image cannot have coop write or mount where its links lead on the host."""
    outside = project.actor.directory("outside")
    if name == "etc":
        (image.base / "etc").rmdir()
    image.link(name, str(outside))
    before = {path.name for path in outside.iterdir()}
    image.shell("echo x > /etc/hosts; echo y > /tmp/y; touch /root/z /dev/w; ls / /proc")
    assert {path.name for path in outside.iterdir()} == before
    assert not list(project.directory.glob("y"))


def test_no_capability_and_no_way_out(image: Image) -> None:
    """A root file system of layers changes nothing about what the command may do."""
    status = image.output("cat /proc/self/status")
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert f"{name}:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status and "Seccomp:\t2" in status
    assert image.shell("ls /usr/bin/python3 /work /home").status != 0
    assert image.shell("echo x > /proc/sys/kernel/hostname").status != 0


def test_guards_hold(image: Image, project: Project) -> None:
    """The workspace is guarded as on the host's own tools."""
    project.write(".git/hooks/pre-commit", "")
    project.write(".env", "secret")
    result = image.shell(
        "cat .env; echo x > .git/hooks/pre-commit; mv .git x; touch Coopfile.lock; ls -a",
        'files.hide=[".env"]',
    )
    assert "secret" not in result.out
    for text in ("can't open '.env'", "pre-commit: Read-only file system", "'.git'", "Coopfile.lock"):
        assert text in result.err
