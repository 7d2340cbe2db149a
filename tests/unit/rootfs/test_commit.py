"""Stages made of what a session has changed: what is in them, and when they count."""

from __future__ import annotations

import multiprocessing
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from coopfile.errors import CoopError
from coopfile.native.upper import Upper
from coopfile.rootfs import base, commit, committed
from coopfile.rootfs.commit import Outcome
from coopfile.rootfs.store import Store
from tests.unit.rootfs.test_base import IMAGED
from tests.unit.rootfs.test_committed import stacked

FORK = multiprocessing.get_context("fork")


class Lab:
    """A project with a built root file system, and an upper directory of a session."""

    def __init__(self, place: Path) -> None:
        self.project = str(place / "project")
        self.upper = place / "upper"
        self.store = Store(os.path.realpath(place / "rootfs"))
        for path in (self.project, self.upper):
            os.mkdir(path)
        self.top = stacked(self.store, self.project, IMAGED)
        self.layers = self.found().layers

    def found(self) -> base.Base:
        """Find what runs have."""
        found = base.find(IMAGED, self.store.directory, self.project)
        for descriptor in found.held:
            os.close(descriptor)
        return found

    def commit(self, origin: str = "one", **how: Any) -> Outcome:
        """Commit the upper directory."""
        descriptor = os.open(self.upper, os.O_RDONLY)
        try:
            upper = Upper(descriptor, self.layers, {})
            return commit.commit(self.store, IMAGED, self.project, upper, origin, **how)
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Begin another session, on what runs have now."""
        for name in os.listdir(self.upper):
            (self.upper / name).unlink()
        self.layers = self.found().layers

    def layer(self) -> Path:
        """Return the directory of what is committed."""
        return Path(self.found().layers[0])

    def left(self) -> list[str]:
        """Return what lies beside complete stages."""
        return os.listdir(f"{self.store.directory}/building")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Yield a lab; files are read by this process, for there may be no user namespaces here."""
    monkeypatch.setattr(commit, "as_owner", lambda produce: produce())
    try:
        os.mknod(tmp_path / "x", stat.S_IFCHR, 0)
    except OSError as error:
        pytest.skip(f"no whiteouts here: {error}")
    yield Lab(tmp_path)


def test_what_is_in_it(lab: Lab) -> None:
    """Modes but set-id bits, times, links, pipes and users' attributes are kept; overlayfs's are not."""
    (lab.upper / "a").write_text("a")
    os.chmod(lab.upper / "a", 0o6751)
    os.setxattr(lab.upper / "a", "user.mine", b"1")
    os.setxattr(lab.upper / "a", "user.overlay.opaque", b"y")
    os.utime(lab.upper / "a", ns=(5, 7))
    os.link(lab.upper / "a", lab.upper / "b")
    os.symlink("/etc/../../shadow", lab.upper / "c")
    os.mkfifo(lab.upper / "d", 0o640)
    os.mkdir(lab.upper / "e")
    os.chmod(lab.upper / "e", 0o2000)
    outcome = lab.commit()
    assert outcome.counts == (5, 0, 0) and outcome.stage is not None and outcome.stage.parent == lab.top
    layer = lab.layer()
    status = (layer / "a").stat()
    assert (stat.S_IMODE(status.st_mode), status.st_mtime_ns, status.st_nlink) == (0o751, 7, 2)
    assert os.listxattr(layer / "a") == ["user.mine"] and (layer / "b").samefile(layer / "a")
    assert os.readlink(layer / "c") == "/etc/../../shadow"
    assert (layer / "d").stat().st_mode == stat.S_IFIFO | 0o640
    assert (layer / "e").stat().st_mode == stat.S_IFDIR | 0o2500
    assert lab.left() == []


def test_content_is_the_key(lab: Lab) -> None:
    """The same content makes the same stage, also after a reset; another byte, mode or time does not."""
    (lab.upper / "a").write_text("a")
    os.utime(lab.upper / "a", (1, 1))
    keys = [lab.commit().stage]
    commit.reset(lab.store, IMAGED, lab.project)
    keys.append(lab.commit().stage)
    os.utime(lab.upper / "a", (2, 2))
    keys.append(lab.commit().stage)
    os.chmod(lab.upper / "a", 0o600)
    keys.append(lab.commit().stage)
    found = [stage.key for stage in keys if stage is not None]
    assert found[0] == found[1] and len(set(found)) == 3


def test_files_are_shared_with_the_last(lab: Lab) -> None:
    """A stage that takes in an earlier one has its files without another copy; what is gone is gone."""
    for name in ("kept", "changed", "gone"):
        (lab.upper / name).write_text(name)
    lab.commit()
    first = lab.layer()
    lab.restart()
    (lab.upper / "changed").write_text("anew")
    os.mknod(lab.upper / "gone", stat.S_IFCHR, 0)
    outcome = lab.commit("two")
    assert outcome.counts == (0, 1, 1)
    second = lab.layer()
    assert second != first and sorted(os.listdir(second)) == ["changed", "kept"]
    assert (second / "kept").samefile(first / "kept") and (second / "changed").read_text() == "anew"
    assert len(lab.found().layers) == len(lab.layers)
    assert [stage.key for stage in lab.store.collect().stages] == [first.parent.name]
    assert (second / "kept").read_text() == "kept"


def test_who_may_replace_what(lab: Lab) -> None:
    """A session replaces its own commit and what it runs on, and nothing that came meanwhile."""
    (lab.upper / "a").write_text("a")
    lab.commit("one")
    (lab.upper / "a").write_text("aa")
    lab.commit("one")
    with pytest.raises(CoopError, match="another session has committed"):
        lab.commit("two")
    assert (lab.layer() / "a").read_text() == "aa"
    lab.commit("two", replace=True)
    commit.reset(lab.store, IMAGED, lab.project)
    lab.commit("two")
    lab.restart()
    commit.reset(lab.store, IMAGED, lab.project)
    (lab.upper / "b").write_text("b")
    with pytest.raises(CoopError, match="was reset"):
        lab.commit("three")
    assert lab.found().committed is None and lab.left() == []


@pytest.mark.parametrize(
    "layers",
    [
        (),
        ("/etc",),
        ("/etc/fs",),
        ("{store}/stages/../../../etc/fs",),
        ("{store}/stages/{top}",),
        ("{store}/stages/none/fs",),
        ("{store}/stages/0123/fs",),
        ("{store}/building/{top}/fs",),
    ],
)
def test_only_stages_are_read(lab: Lab, layers: tuple[str, ...]) -> None:
    """Whatever a session says that it runs on, nothing of the host but the store's stages is opened."""
    lab.layers = tuple(layer.format(store=lab.store.directory, top=lab.top) for layer in layers)
    (lab.upper / "a").write_text("a")
    with pytest.raises(CoopError):
        lab.commit()
    with pytest.raises(CoopError), ExitStack() as opened:
        commit.open_layers(lab.store, Upper(-1, lab.layers, {}), opened)
    assert lab.left() == []


@pytest.mark.parametrize("step", ["seal", "adopt", "write", "written"])
def test_killed(lab: Lab, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Wherever a commit is killed, runs have what they had, or all of it, and the next commit goes on."""
    (lab.upper / "a").write_text("a")

    def die(*_: object) -> None:
        os._exit(9)

    def late(real: Callable[..., None]) -> Callable[..., None]:
        def write(*given: Any) -> None:
            real(*given)
            os._exit(9)

        return write

    with monkeypatch.context() as patched:
        if step == "seal":
            patched.setattr(Store, "made", die)
        elif step == "adopt":
            patched.setattr(Store, "adopt", die)
        else:
            patched.setattr(committed, "write", die if step == "write" else late(committed.write))
        process = FORK.Process(target=lab.commit)
        process.start()
        process.join(30)
    assert process.exitcode == 9
    assert (lab.found().committed is not None) == (step == "written")
    assert len(lab.store.collect().stages) == (step == "write")
    assert lab.commit().stage is not None and (lab.layer() / "a").read_text() == "a"
    assert lab.left() == []


def test_a_full_disk(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room there is an error with a remedy, and everything is as before."""
    (lab.upper / "a").write_text("a")

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CoopError, match="no room left") as caught:
        lab.commit()
    assert caught.value.remedy == "coop clean frees what nothing uses"
    assert lab.found().committed is None and lab.left() == []
