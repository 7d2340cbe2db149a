"""Building a root file system: what fails is shown where it stands, the lock is kept, shells open."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.imaged import BUSYBOX, made
from tests.sandboxes import DEADLINE, Project, descendants, wait_gone, wait_until
from tests.unit.rootfs.fakeregistry import FakeRegistry
from tests.unit.rootfs.images import MadeImage

pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")

# Every installation finds a newer version of what is asked for: it counts in the cache of downloads.
APK = b"""#!/bin/sh
case $1 in
add) read n < /run/coop/apk/count || n=0
    echo $((n + 1)) > /run/coop/apk/count
    echo 1.$((n + 1)) > /etc/tool-version ;;
info) read version < /etc/tool-version
    echo "tool-$version-r0"
    echo "other-9-r9" ;;
esac
"""
TOOL = '[packages]\napk = ["tool"]\n'


def with_apk(version: str, before: bytes = b"") -> MadeImage:
    """Return an image of busybox and a package manager of the tests' own; ``before`` is run first by it."""
    apk = APK.replace(b"\n", b"\n" + before + b"\n", 1)
    image = made(version)
    raw = io.BytesIO(image.tar)
    with tarfile.open(fileobj=raw, mode="a") as tar:
        member = tarfile.TarInfo("bin/apk")
        member.size, member.mode = len(apk), 0o755
        tar.addfile(member, io.BytesIO(apk))
    image.hold(raw.getvalue())
    return image


@pytest.fixture
def registry(registry: FakeRegistry) -> FakeRegistry:
    """Return the registry with version one that has the package manager."""
    registry.add(with_apk("one"), "1")
    return registry


class Built:
    """A project on the registry's image, built without a network."""

    def __init__(self, project: Project, registry: FakeRegistry) -> None:
        self.project = project
        self.address = registry.address

    def write(self, text: str) -> None:
        """Write and approve a Coopfile: the text comes after the image, which takes its first two lines."""
        image = f'base.image = "{self.address}/team/app:1"\nsetup.network = "none"\n'
        self.project.coopfile(image + text)

    @property
    def lock(self) -> str:
        """The lock's text."""
        return (self.project.directory / "Coopfile.lock").read_text()

    def spawn(self, *argv: str) -> pexpect.spawn[str]:
        """Start a verb of coop on a terminal."""
        command = [*self.project.actor.prefix, *self.project.actor.coop, *argv]
        environment: Any = {**self.project.environment, "TERM": "xterm"}
        made = pexpect.spawn(
            command[0],
            [*command[1:], "-C", str(self.project.directory)],
            env=environment,
            timeout=DEADLINE,
            encoding="utf-8",
        )
        self.project._terminals.append(made)
        return made


@pytest.fixture
def built(project: Project, registry: FakeRegistry) -> Built:
    """Return a project whose Coopfile a test writes."""
    return Built(project, registry)


def test_init_builds(built: Built) -> None:
    """Set-up is run once, says so in plain lines, and its work is there in every run."""
    built.write('setup.run = ["echo 1 > /made", "cat /made >> /made2"]\n')
    first = built.project.coop("init")
    assert first.status == 0, first
    assert re.search(r"^coop: setup.run 2/2: cat /made >> /made2$", first.err, re.MULTILINE)
    assert re.search(r"^coop: setup.run \(2 of 2\): built in [\d.]+ s$", first.err, re.MULTILINE)
    assert re.search(r"^coop: layer 1 of 1: fetched [\d.]+ MB in [\d.]+ s$", first.err, re.MULTILINE)
    assert all(line.isprintable() for line in first.err.splitlines())
    assert built.project.output("cat /made2") == "1"
    assert "kept" in built.project.coop("init", "--json").err


def test_a_second_init_is_short(built: Built) -> None:
    """When all is there init says no more than that, and does not even look at the Coopfile's text."""
    built.write('setup.run = ["true"]\n')
    for _ in range(2):
        assert built.project.coop("init").status == 0
    again = built.project.coop("init")
    assert again.status == 0 and re.fullmatch(r"coop: \S+ is ready\n", again.err)
    below = built.project.coop("init", "-C", str(built.project.mkdir("below")))
    assert (
        below.status == 0 and "wrote" in below.out and (built.project.directory / "below/Coopfile").exists()
    )
    built.write('setup.run = ["echo 2 > /two"]\n')
    changed = built.project.coop("init")
    assert changed.status == 0 and "setup.run (2 of 2): built" in changed.err
    assert built.project.output("cat /two") == "2"


def test_a_stage_that_was_removed_is_built_again(built: Built) -> None:
    """Init does not take the record of a build for the build."""
    built.write('setup.run = ["echo 3 > /three"]\n')
    for _ in range(3):
        assert built.project.coop("init").status == 0
    (built.project.home / ".local/share/coop/rootfs/roots").rename(built.project.home / "roots")
    assert built.project.coop("clean").status == 0
    again = built.project.coop("init")
    assert again.status == 0 and "built" in again.err
    assert built.project.output("cat /three") == "3"


def test_a_failing_command(built: Built) -> None:
    """It is shown where it stands, with its status, the end of what it said and the way to a shell."""
    command = r"""'echo begin; printf "\033[2J\033[31mred\a\n"; exit 7'"""
    built.write(f"setup.run = [\n    'true',\n    {command}, # here\n]\n")
    failed = built.project.coop("init")
    assert failed.status == 125, failed
    lines = failed.err.splitlines()
    place = next(index for index, line in enumerate(lines) if line.startswith("Coopfile:"))
    assert lines[place] == "Coopfile:5:5: error: setup.run: command 2 failed with status 7"
    assert lines[place + 1] == f" 5 |     {command}, # here"
    assert lines[place + 2] == "   |     " + "^" * len(command)
    assert "coop rebuild --debug" in lines[place + 3]
    assert "  begin" in lines[:place] and r"  red\x07" in lines[:place]
    assert all(line.isprintable() for line in lines) and "Traceback" not in failed.err
    refused = built.project.run("true")
    assert refused.status == 125 and "coop init" in refused.err


def test_a_failure_as_json(built: Built) -> None:
    """Programs get the place and the output as data."""
    built.write('[agent]\ninstall = "echo no such thing; exit 3"\n')
    failed = built.project.coop("init", "--json", "--quiet")
    data = json.loads(failed.out)
    assert (failed.status, data["status"], data["output"]) == (125, 125, ["no such thing"])
    (diagnostic,) = data["diagnostics"]
    assert (diagnostic["source"], diagnostic["line"], diagnostic["column"]) == ("Coopfile", 4, 1)


def test_verbose(built: Built) -> None:
    """With -v all that the commands print is shown, without -v of a command that succeeds nothing."""
    built.write('setup.run = ["echo first line; echo second"]\n')
    assert "  first line\n  second\n" in built.project.coop("init", "-v").err
    assert "  second" not in built.project.coop("rebuild").err


def test_quiet(built: Built) -> None:
    """With -q there is nothing to read."""
    built.write('setup.run = ["echo first line"]\n')
    result = built.project.coop("init", "-q")
    assert (result.status, result.out, result.err) == (0, "", "")


def test_rebuild(built: Built) -> None:
    """A rebuild runs the commands again and replaces what the project uses."""
    built.write("setup.run = ['head -c 9 /dev/urandom | od -x > /number']\n")
    assert built.project.coop("init").status == 0
    first = built.project.output("cat /number")
    assert built.project.coop("init").status == 0 and built.project.output("cat /number") == first
    result = built.project.coop("rebuild")
    assert result.status == 0 and "image (1 of 2): kept" in result.err
    assert built.project.output("cat /number") != first
    cleaned = built.project.coop("clean", "--json")
    assert [stage["kind"] for stage in json.loads(cleaned.out)["stages"]] == ["setup.run"]


def test_a_rebuild_that_fails_changes_nothing(built: Built) -> None:
    """What was built before stays in use."""
    flag = "/flag-of-the-image"
    built.write(f"setup.run = ['test ! -e {flag} && echo 1 > /made']\n")
    assert built.project.coop("init").status == 0
    lock = built.lock
    built.write("setup.run = ['echo 1 > /made', 'false']\n")
    assert built.project.coop("rebuild", "--upgrade").status == 125 and built.lock == lock
    built.write(f"setup.run = ['test ! -e {flag} && echo 1 > /made']\n")
    assert built.project.output("cat /made") == "1"


def test_upgrade(built: Built, registry: FakeRegistry) -> None:
    """--upgrade asks what the tag stands for now, builds on that, and locks it with its packages."""
    built.write(TOOL)
    assert built.project.coop("init").status == 0
    before = built.lock
    assert before.endswith('\n[packages.apk]\n"tool" = "1.1-r0"\n')
    registry.add(with_apk("two"), "1")
    assert built.project.coop("rebuild").status == 0
    assert built.lock == before and built.project.output("cat /etc/version") == "one"
    upgraded = built.project.coop("rebuild", "--upgrade")
    assert upgraded.status == 0 and "(was sha256:" in upgraded.err
    assert built.project.output("cat /etc/version") == "two"
    assert built.lock.endswith('\n[packages.apk]\n"tool" = "1.3-r0"\n') and built.lock != before
    assert built.project.coop("init", "--frozen").status == 0


def test_an_upgrade_that_fails_keeps_the_lock(built: Built, registry: FakeRegistry) -> None:
    """A lock is renewed only when what it names has been built."""
    built.write("setup.run = ['read v < /etc/version; test $v = one || test $v = two && ! test $v = two']\n")
    assert built.project.coop("init").status == 0
    before = built.lock
    registry.add(with_apk("two\n"), "1")
    assert built.project.coop("rebuild", "--upgrade").status == 125
    assert built.lock == before and built.project.output("cat /etc/version") == "one"


def test_a_lock_that_is_renewed_during_a_build(built: Built, registry: FakeRegistry) -> None:
    """A build that began with the lock of before does not bring it back."""
    registry.add(with_apk("one", b"test $1 = info || touch /run/coop/apk/begun; busybox sleep 2"), "1")
    built.write(TOOL)
    project = built.project
    building = subprocess.Popen(
        [*project.actor.prefix, *project.actor.coop, "init", "-C", str(project.directory)],
        env=project.environment,
        stderr=subprocess.PIPE,
    )
    caches = project.home / ".local/share/coop/rootfs/caches"
    assert wait_until(lambda: bool(list(caches.glob("*/apk/begun"))))
    before = built.lock
    registry.add(with_apk("two"), "1")
    assert project.coop("lock", "--upgrade").status == 0
    upgraded = built.lock
    _, err = building.communicate(timeout=60)
    assert building.returncode == 125 and b"Coopfile.lock was changed" in err, err
    assert built.lock == upgraded != before
    assert project.coop("init").status == 0 and project.output("cat /etc/version") == "two"


def test_other_versions_than_the_locks(built: Built) -> None:
    """A build that finds another version says so; with --frozen it is not used."""
    built.write(TOOL)
    assert built.project.coop("init").status == 0
    before = built.lock
    warned = built.project.coop("rebuild")
    assert warned.status == 0 and built.lock == before
    assert "packages.apk: tool is 1.2-r0, not 1.1-r0 as Coopfile.lock says" in warned.err
    assert built.project.output("cat /etc/tool-version") == "1.2"
    refused = built.project.coop("rebuild", "--frozen")
    assert refused.status == 125 and "tool is 1.3-r0, not 1.1-r0" in refused.err
    assert "coop rebuild --upgrade" in refused.err and built.lock == before
    assert built.project.output("cat /etc/tool-version") == "1.2"


def test_packages_come_and_go(built: Built) -> None:
    """The lock has the versions of what is asked for and of nothing else."""
    built.write(TOOL)
    assert built.project.coop("init").status == 0
    built.write('[packages]\napk = ["other", "tool"]\n')
    frozen = built.project.coop("init", "--frozen")
    assert frozen.status == 125 and "other is 9-r9, and not in Coopfile.lock" in frozen.err
    assert built.project.coop("init").status == 0
    assert built.lock.endswith('\n[packages.apk]\n"other" = "9-r9"\n"tool" = "1.1-r0"\n')
    built.write("")
    assert built.project.coop("init").status == 0 and "packages" not in built.lock


def test_where_nothing_more_can_be_started(built: Built) -> None:
    """A user who has as many processes as may be is told so, wherever the build comes to it."""
    project = built.project
    if project.actor.uid == 0:
        pytest.skip("the kernel never holds root to this limit")
    built.write('setup.run = ["true"]\n')
    building = project.home / ".local/share/coop/rootfs/building"
    for most in (1, 2, 3, 4, 5, 6, 7, 8):
        argv = ("prlimit", f"--nproc={most}", *project.actor.coop, "init", "-C", str(project.directory))
        result = project.actor.run(*argv, environment=project.environment)
        assert result.status == 0 or (result.status == 125 and "too many processes" in result.err), result
        assert most > 1 or result.status == 125
        assert not building.exists() or not list(building.iterdir())


def test_frozen(built: Built, registry: FakeRegistry) -> None:
    """--frozen neither writes a lock nor takes one of another image."""
    nothing = built.project.coop("init", "--frozen", "-C", str(built.project.mkdir("nothing")))
    assert nothing.status == 125 and not list((built.project.directory / "nothing").iterdir())
    built.write("")
    for verb in ("init", "rebuild", "lock"):
        refused = built.project.coop(verb, "--frozen")
        assert refused.status == 125 and "Coopfile.lock is missing" in refused.err
    assert not (built.project.directory / "Coopfile.lock").exists() and registry.seen == []
    assert built.project.coop("lock").status == 0
    for verb in ("lock", "init", "rebuild"):
        assert built.project.coop(verb, "--frozen").status == 0
    stale = built.project.coop("init", "--frozen", "--set", f"base.image={built.address}/team/app:2")
    assert stale.status == 125 and "base.image is now" in stale.err
    both = built.project.coop("rebuild", "--frozen", "--upgrade")
    assert both.status == 2 and "leave one out" in both.err


def test_debug(built: Built) -> None:
    """--debug opens a shell on what the command left; afterwards nothing of the stage is there."""
    built.write("setup.run = ['echo half > /half', 'echo $RANDOM >> /half; exit 9', 'true']\n")
    child = built.spawn("rebuild", "--debug")
    child.expect("command 2 failed with status 9")
    child.expect("this shell")
    child.expect(r"[#$] ")
    child.sendline("cat /half; tty; ls -d /workspace; echo $HOME $TERM; id -u")
    child.expect(r"half\r\n\d+\r\n.*/workspace.*/root xterm\r\n0\r\n")
    child.sendline("exit 0")
    child.expect("setup.run is not built")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 125
    store = built.project.home / ".local/share/coop/rootfs"
    assert len(list((store / "stages").iterdir())) == 1 and not list((store / "building").iterdir())


def test_debug_needs_a_terminal(built: Built, registry: FakeRegistry) -> None:
    """Where nobody can type it is refused before anything is done."""
    built.write("setup.run = ['false']\n")
    refused = built.project.coop("rebuild", "--debug")
    assert refused.status == 2 and "no terminal" in refused.err and registry.seen == []


def test_interrupted(built: Built) -> None:
    """^C ends the build and what it runs, and leaves neither rows on the terminal nor ruins in the store."""
    built.write("setup.run = ['echo started; cat /dev/zero > /dev/null']\n")
    child = built.spawn("init")
    child.expect("    started")
    below = descendants(child.pid or 0)
    child.send("\x03")
    child.expect(pexpect.EOF)
    assert str(child.before).endswith("\x1b[2A\r\x1b[J")
    child.close()
    assert child.exitstatus == 130 and wait_gone(below)
    assert not list((built.project.home / ".local/share/coop/rootfs/building").iterdir())


def test_status(built: Built) -> None:
    """Status tells what is built, how big it is, and that the Coopfile has changed since."""
    built.write("setup.run = ['true']\n")

    def root() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(built.project.coop("status", "--json").out)["root"]
        return found

    assert (root()["state"], root()["stages"], root()["remedy"]) == (
        "not built",
        [],
        "coop init locks and fetches it",
    )
    assert built.project.coop("init").status == 0
    found = root()
    assert found["state"] == "built" and [stage["kind"] for stage in found["stages"]] == [
        "image",
        "setup.run",
    ]
    assert found["stages"][0]["size"] > BUSYBOX.stat().st_size // 2
    text = built.project.coop("sandbox", "status").out
    assert re.search(r"^image  \S+: built$", text, re.MULTILINE)
    assert re.search(r"^store  /\S+/rootfs: [\d.]+ MB in 2 stages$", text, re.MULTILINE)
    built.write("setup.run = ['true', 'true']\n")
    found = root()
    assert found["state"] == "changed" and "setup.run has changed" in found["why"]
    assert [stage["size"] is None for stage in found["stages"]] == [False, True]


def test_clean_caches(built: Built) -> None:
    """Downloads of a project that is there go when asked for, of one that is gone always; sessions stay."""
    persistent = built.project.mkdir(built.project.home / ".local/share/coop/sessions/id/persist/.claude")
    built.write(TOOL)
    assert built.project.coop("init").status == 0
    caches: Path = built.project.home / ".local/share/coop/rootfs/caches"
    assert len(list(caches.glob("*/apk/count"))) == 1
    assert built.project.coop("clean").out == "freed 0.0 MB in 0 stages\n"
    told = built.project.coop("clean", "--caches", "--dry-run").out
    assert "downloads" in told and "would free" in told and list(caches.iterdir())
    assert "downloads" in built.project.coop("sandbox", "clean", "--caches").out
    assert not list(caches.iterdir())
    assert built.project.output("cat /etc/tool-version") == "1.1"
    assert built.project.coop("rebuild").status == 0 and list(caches.iterdir())
    os.rename(built.project.directory, built.project.home / "elsewhere")
    built.project.mkdir(built.project.home / "new")
    built.project.directory = built.project.home / "new"
    assert "downloads" in built.project.coop("clean").out and not list(caches.iterdir())
    assert persistent.is_dir()
