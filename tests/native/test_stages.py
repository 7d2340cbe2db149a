"""Root file systems that are built: stage by stage, each once, found again, and never written after."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coopfile.rootfs.tree import fingerprint
from tests.imaged import BUSYBOX
from tests.native.test_rebuild import with_apk
from tests.native.test_start import SLOW, bare, imported
from tests.sandboxes import Project, descendants, wait_gone, wait_until
from tests.unit.rootfs.fakeregistry import FakeRegistry

pytestmark = pytest.mark.skipif(not BUSYBOX.exists(), reason="busybox-static is not installed")

UNIQUE = "cat /proc/sys/kernel/random/uuid > /"


class Built:
    """A project on the registry's image, built without a network."""

    def __init__(self, project: Project, registry: FakeRegistry) -> None:
        self.project = project
        self._image = f"{registry.address}/team/app:1"

    def asks(self, *commands: str, agent: str | None = None, more: str = "") -> None:
        """Write the Coopfile: its commands, its agent, and other tables."""
        install = "" if agent is None else f"[agent]\ninstall = {json.dumps(agent)}\n"
        self.project.coopfile(
            f'[base]\nimage = "{self._image}"\n'
            f'[setup]\nrun = {json.dumps(commands)}\nnetwork = "none"\n{install}{more}'
        )

    def init(self, *commands: str, agent: str | None = None, more: str = "") -> None:
        """Write the Coopfile and build what it asks for."""
        self.asks(*commands, agent=agent, more=more)
        result = self.project.coop("init")
        assert result.status == 0, result

    @property
    def store(self) -> Path:
        """The store of the actor's."""
        data = self.project.environment.get("XDG_DATA_HOME", f"{self.project.home}/.local/share")
        return Path(data, "coop/rootfs")

    def stages(self, kind: str = "") -> list[Path]:
        """Return the stages of a kind, or all of them."""
        found = self.store.glob("stages/*/stage.json")
        return sorted(path.parent for path in found if kind in ("", json.loads(path.read_text())["kind"]))

    def layer(self, kind: str) -> Path:
        """Return the layer of the only stage of a kind."""
        (stage,) = self.stages(kind)
        return stage / "fs"


@pytest.fixture
def built(project: Project, registry: FakeRegistry) -> Built:
    """Return a project that can be built."""
    return Built(project, registry)


@pytest.fixture
def neighbour(built: Built, registry: FakeRegistry) -> Iterator[Built]:
    """Yield another project of the same actor's, on the same store."""
    other = Project(built.project.actor)
    other.environment["XDG_DATA_HOME"] = f"{built.project.home}/.local/share"
    other.environment["COOP_SANDBOX_BACKEND"] = "native"
    yield Built(other, registry)
    other.close()


def test_set_up_and_agent(built: Built) -> None:
    """Commands run in their order on the image, the agent's last, and a run has what they left."""
    built.init(
        "echo one > /log", "echo two >> /log", agent="cat /log /etc/version > /agent; echo of $PATH >> /agent"
    )
    assert built.project.output("cat /agent") == "one\ntwo\noneof /opt/bin:/bin"
    assert len(built.stages()) == 3
    assert not list((built.store / "building").iterdir())


def test_what_has_not_changed_is_kept(built: Built, registry: FakeRegistry) -> None:
    """Another agent repeats only the agent; other commands repeat these and the agent."""
    setup, agent = f"{UNIQUE}setup", f"{UNIQUE}agent"

    def ids() -> list[str]:
        return built.project.output("cat /setup /agent").split()

    built.init(setup, agent=agent)
    first = ids()
    asked = len(registry.seen)
    built.init(setup, agent=agent)
    assert ids() == first
    built.init(setup, agent=f"{agent}; true")
    second = ids()
    assert second[0] == first[0] and second[1] != first[1]
    built.init(f"{setup}; true", agent=f"{agent}; true")
    third = ids()
    assert third[0] != second[0] and third[1] != second[1]
    assert len(registry.seen) == asked and len(built.stages("image")) == 1
    built.init(setup, agent=agent)
    assert ids() == first, "what was built before is still there"


def test_a_run_needs_what_its_plan_asks_for(built: Built) -> None:
    """What is not built, has changed since or has been removed is told, with the command that helps."""
    built.asks("true")
    assert built.project.coop("lock").status == 0

    def refused() -> str:
        result = built.project.run("true")
        assert result.status == 125 and "coop init" in result.err, result
        return result.err

    assert "not built yet" in refused()
    built.init("true")
    assert built.project.run("true").status == 0
    built.asks("true", "true")
    assert "setup.run has changed" in refused()
    built.asks("true", agent="true")
    assert "agent.install has changed" in refused()
    built.asks("true")
    assert built.project.run("true").status == 0
    shutil.rmtree(built.stages("setup.run")[0])
    assert "no longer there" in refused()
    built.init("true")
    assert built.project.run("true").status == 0


def test_projects_share_stages(built: Built, neighbour: Built) -> None:
    """What two projects ask for alike is built once, and what one changes is its own."""
    built.init(f"{UNIQUE}id", agent="true")
    neighbour.init(f"{UNIQUE}id")
    shared = built.project.output("cat /id")
    assert neighbour.project.output("cat /id") == shared
    neighbour.init(f"{UNIQUE}id; true")
    assert neighbour.project.output("cat /id") != shared and built.project.output("cat /id") == shared


def test_a_failing_command(built: Built) -> None:
    """A command that fails shows what it printed; what it made is gone and what was built before stays."""
    built.asks("echo begun > /begun", "echo loud; echo louder >&2; exit 3", "touch /never")
    result = built.project.coop("init")
    assert result.status == 125 and "Traceback" not in result.err
    for text in ("setup.run", "loud\n", "louder\n", "3", "coop rebuild --debug"):
        assert text in result.err, result.err
    assert built.stages("setup.run") == [] and len(built.stages("image")) == 1
    assert not list((built.store / "building").iterdir())
    built.init("echo begun > /begun")
    assert built.project.output("cat /begun; ls /never 2>/dev/null || true") == "begun"


def test_much_output_and_what_still_runs(built: Built) -> None:
    """Of much output the end is shown, and what a command leaves running holds nothing up."""
    built.asks(
        "busybox yes | busybox head -c 3000000; echo the-end; exit 1",
    )
    result = built.project.coop("init")
    assert result.status == 125 and "the-end" in result.err
    built.init("busybox sleep 1000 & echo $! > /pid")
    assert built.project.run("true").status == 0


@pytest.mark.parametrize(
    "command",
    [
        "chmod 0 /",
        "chmod 0 / /etc /bin",
        "i=0; while mkdir d && cd d; do i=$((i+1)); [ $i -lt 600 ] || exit 0; done",
    ],
)
def test_layers_that_are_hard_to_handle(built: Built, command: str) -> None:
    """Whatever a command does to its layer, it is built or refused, and can be removed."""
    built.asks(command)
    result = built.project.coop("init")
    assert result.status in (0, 125) and "Traceback" not in result.err, result
    assert not list((built.store / "building").iterdir())
    built.init("true")
    assert built.project.coop("clean").status == 0
    assert len(built.stages()) == 2 and not list((built.store / "building").iterdir())


def test_stages_remove_and_replace(built: Built) -> None:
    """What a stage removes is gone, and a directory that it replaces has nothing of the old one."""
    built.init(
        "rm /etc/version /bin/id; mkdir -p /opt/tree/old; touch /opt/tree/old/file",
        "mv /opt/tree/old /opt/tree/new",
        agent="rm -r /opt/tree; mkdir -p /opt/tree; touch /opt/tree/fresh; rm -r /etc; mkdir /etc",
    )
    assert built.project.output("ls /opt/tree; ls /bin/id /etc/version 2>/dev/null || true") == "fresh"


def test_set_id_bits_are_taken(built: Built) -> None:
    """A program may be made set-id while a stage is built, and is not when it is done."""
    built.init("cat /bin/busybox > /bin/own; chmod 6755 /bin/own; busybox stat -c %a /bin/own > /mode")
    assert built.project.output("cat /mode") == "6755"
    mode = (built.layer("setup.run") / "bin/own").lstat().st_mode
    assert stat.S_IMODE(mode) == 0o755


def test_a_build_sees_nothing_of_the_caller(built: Built) -> None:
    """No workspace, no variable of the plan or of the caller, no home and no kept directory is in a build."""
    built.project.write("secret-of-the-workspace")
    built.project.write(str(built.project.home / ".claude/token"), "secret")
    built.project.environment["FROM_CALLER"] = "secret-of-the-caller"
    home = built.project.home
    built.init(
        "env > /seen; pwd >> /seen; ls -a / /root /workspace >> /seen 2>&1 || true",
        f"ls {home} {built.project.directory} /proc/1/root/home >> /seen 2>&1 || true",
        more=f'[env]\nPLAIN = "secret-of-the-plan"\nCALLER = {{ host = "FROM_CALLER" }}\n'
        f'[files]\nread = ["{home}"]\n[session]\npersist = [".claude"]\n',
    )
    seen = built.project.output("cat /seen").splitlines()
    assert not [line for line in seen if "secret" in line or line == ".claude"]
    variables = {line.partition("=")[0] for line in seen if "=" in line}
    known = {"APT_CONFIG", "FROM_IMAGE", "HOME", "LOGNAME", "PATH", "PWD", "SHLVL", "TERM", "USER"}
    assert {"FROM_IMAGE", "HOME", "PATH"} <= variables <= known
    assert "HOME=/root" in seen and "USER=root" in seen and "/" in seen
    assert f"ls: {home}: No such file or directory" in seen


def test_scratch_is_no_part_of_a_stage(built: Built) -> None:
    """What is left in /tmp, /var/tmp and /run is there for the stage's next command and then gone."""
    built.init("touch /tmp/a /run/b /var/tmp/c", "ls /tmp/a /run/b /var/tmp/c > /seen")
    assert built.project.output("cat /seen").split() == ["/run/b", "/tmp/a", "/var/tmp/c"]
    layer = built.layer("setup.run")
    assert [path for path in layer.rglob("*") if path.is_file()] == [layer / "seen"]


def test_no_layer_is_ever_written(built: Built) -> None:
    """Whatever runs and later builds do, the layers stay byte for byte as they were built."""
    setup = "mkdir /opt; echo set up > /opt/file; touch /opt/other"
    built.init(setup)
    before = {stage.name: fingerprint(str(stage / "fs")) for stage in built.stages()}
    hostile = "rm -r /etc /opt/other; echo x > /opt/file; chmod 777 / /bin; mv /bin/busybox /bin/gone"
    built.project.shell(hostile)
    built.asks(setup, agent=f"{hostile}; exit 1")
    assert built.project.coop("init").status == 125
    built.init(setup, agent=hostile)
    after = {stage.name: fingerprint(str(stage / "fs")) for stage in built.stages()}
    assert {name: after[name] for name in before} == before


def test_clean_keeps_the_whole_chain(built: Built) -> None:
    """What the project stands on stays, what it no longer uses goes, but not below a run."""
    built.init("echo old > /version", agent="true")
    running = built.project.popen("sh", "-c", "echo go; read line; cat /version", stdin=-1)
    assert running.stdout is not None and running.stdout.readline() == b"go\n"
    built.init("echo new > /version", agent="true")
    assert len(built.stages()) == 5
    assert built.project.coop("clean").status == 0
    assert len(built.stages()) == 5, "a run holds what it stands on"
    out, _ = running.communicate(b"\n", timeout=30)
    assert out == b"old\n"
    assert built.project.coop("clean").status == 0
    assert len(built.stages()) == 3
    assert built.project.output("cat /version") == "new"


def test_built_anew(built: Built, neighbour: Built) -> None:
    """Stages are built again for their own project alone, and what runs on the old ones keeps them."""
    commands = (f"{UNIQUE}id",)
    built.init(*commands, agent="true")
    neighbour.init(*commands)
    first = built.project.output("cat /id")
    running = built.project.popen("sh", "-c", "echo go; read line; cat /id", stdin=-1)
    assert running.stdout is not None and running.stdout.readline() == b"go\n"
    result = built.project.coop("rebuild")
    assert result.status == 0, result
    second = built.project.output("cat /id")
    assert second != first and neighbour.project.output("cat /id") == first
    built.init(*commands, agent="true")
    assert built.project.output("cat /id") == second, "init keeps what was built last"
    built.init(*commands, agent=":")
    assert built.project.output("cat /id") == second, "and so does another agent"
    assert neighbour.project.coop("clean").status == 0
    out, _ = running.communicate(b"\n", timeout=30)
    assert out.decode().strip() == first
    assert built.project.output("cat /id") == second and neighbour.project.output("cat /id") == first


def test_a_failed_rebuild_changes_nothing(built: Built) -> None:
    """When building anew fails the project stays on what it had."""
    built.init("echo first > /version")
    before = built.project.output("cat /version")
    built.asks("exit 1")
    assert built.project.coop("rebuild").status == 125
    built.asks("echo first > /version")
    assert built.project.output("cat /version") == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_build(built: Built, number: signal.Signals) -> None:
    """A build that is told to end leaves nothing of its stage, nor a process."""
    built.asks("echo begun > /begun; exec busybox sleep 1000")
    project = built.project
    started = subprocess.Popen(
        [*project.actor.prefix, *project.actor.coop, "init", "-C", str(project.directory)],
        env=project.environment,
        stderr=subprocess.DEVNULL,
    )
    assert wait_until(lambda: list(built.store.glob("building/*/fs/begun")))
    below = descendants(started.pid)
    started.send_signal(number)
    assert started.wait(30) == 128 + number
    assert wait_gone(below)
    assert not list((built.store / "building").iterdir()) and built.stages("setup.run") == []


def test_two_builds_at_once(built: Built, neighbour: Built) -> None:
    """Of builds of the same at the same time one builds and the others have it too."""
    commands = (f"{UNIQUE}id", "busybox sleep 1")
    built.asks(*commands)
    neighbour.asks(*commands, agent="true")
    started = [
        subprocess.Popen(
            [*project.actor.prefix, *project.actor.coop, "init", "-C", str(project.directory)],
            env=project.environment,
            stderr=subprocess.PIPE,
        )
        for project in (built.project, built.project, neighbour.project)
    ]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert len(built.stages("setup.run")) == 1
    assert built.project.output("cat /id") == neighbour.project.output("cat /id")
    assert wait_until(lambda: not list((built.store / "building").iterdir()))


def test_a_lock_gives_no_image_that_is_not_there(
    built: Built, neighbour: Built, registry: FakeRegistry
) -> None:
    """A repository's lock cannot have the digest of another project's image, which nobody approved for it."""
    built.init()
    lock = (built.project.directory / "Coopfile.lock").read_text()
    name = f"{registry.address}/innocent/app:1"
    neighbour.project.write("Coopfile.lock", lock.replace(f"{registry.address}/team/app:1", name))
    neighbour.project.coopfile(f'base.image = "{name}"\nsetup.network = "none"\n')
    registry.script("/innocent/", lambda handler: handler.give(b"{}", 404, Content_Type="application/json"))
    for verb in (("run", "--", "/bin/cat", "/etc/version"), ("init",)):
        refused = neighbour.project.coop(*verb)
        assert refused.status == 125 and refused.out == "", refused
    assert "does not exist" in refused.err
    registry.script("/innocent/", registry.serve)
    fetched = len(registry.asked("/blobs/"))
    assert neighbour.project.coop("init").status == 0
    assert neighbour.project.output("cat /etc/version") == "one" and len(built.stages("image")) == 1
    assert len(registry.asked("/blobs/")) == fetched + 1, "the image's config, and no layer"


def test_two_builds_of_a_project_at_once(built: Built, registry: FakeRegistry) -> None:
    """What one has installed the other has too: downloads that came meanwhile do not make it another's."""
    registry.add(with_apk("one", b"busybox sleep 1"), "1")
    built.project.coopfile(
        f'[base]\nimage = "{registry.address}/team/app:1"\n'
        '[packages]\napk = ["tool"]\n[setup]\nnetwork = "none"\n'
    )
    assert built.project.coop("lock").status == 0
    project = built.project
    started = [
        subprocess.Popen(
            [*project.actor.prefix, *project.actor.coop, "init", "-C", str(project.directory)],
            env=project.environment,
            stderr=subprocess.PIPE,
        )
        for _ in range(3)
    ]
    for process in started:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert len(built.stages("packages.apk")) == 1
    assert project.output("cat /etc/tool-version") == "1.1"


def test_files_in_the_store_are_the_owners_own(built: Built) -> None:
    """Every file of a stage is of who built it, whatever a command wanted, and nobody else gets there."""
    built.init("busybox chown 33:33 /etc/version; mkdir /closed; touch /closed/in; chmod 0 /closed")
    owners = {
        os.lstat(path).st_uid for path in (built.layer("setup.run"), *built.layer("setup.run").rglob("*"))
    }
    assert owners == {built.project.actor.uid}
    assert stat.S_IMODE(built.store.stat().st_mode) == 0o700


def test_a_cached_run_imports_little(built: Built) -> None:
    """A run on what is built imports nothing that is slow to import, and finds its layers without hashing."""
    built.init("true", agent="true")
    time.sleep(0.1)  # a Coopfile as new as this would not be cached
    for _ in range(2):
        imported(built.project)  # which may write bundles at its end
    found = imported(built.project) - bare(built.project)
    assert "coopfile.rootfs.base" in found and not found & SLOW, sorted(found & SLOW)
    ours = {name for name in found if name.startswith("coopfile.rootfs")}
    assert ours == {"coopfile.rootfs", "coopfile.rootfs.base", "coopfile.rootfs.hold"}


def test_downloads_of_one_project_reach_no_other(
    built: Built, neighbour: Built, registry: FakeRegistry
) -> None:
    """What is installed with a project's earlier downloads is its own: they may be anything."""
    registry.add(with_apk("one"), "1")  # installs a version that its earlier downloads choose
    one, two = '[packages]\napk = ["tool"]\n', '[packages]\napk = ["other", "tool"]\n'

    def version(project: Built) -> str:
        return project.project.output("cat /etc/tool-version")

    built.init(more=one)
    neighbour.init(more=one)
    assert version(built) == version(neighbour) == "1.1"
    assert len(built.stages("packages.apk")) == 1, "built with no downloads, and shared"
    built.init(more=two)
    neighbour.init(more=two)
    assert version(built) == "1.2" and version(neighbour) == "1.1"
    built.init(more=two)
    assert len(built.stages("packages.apk")) == 3
