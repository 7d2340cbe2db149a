"""What is seen of this machine for a rendering: kinds, links, hidden paths, and the host's own tools."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from coopfile.engines.collect import facts, facts_of, kind, look, make_masks
from coopfile.errors import CoopError
from coopfile.native.marks import MODE
from coopfile.plan.launch import Host
from coopfile.plan.model import Plan, with_leaf
from coopfile.render.facts import DIRECTORY, FILE, LINK, PLACEHOLDER, Engine
from tests.unit.plan.samples import PLAN

DOCKER = Engine("docker", "/usr/bin/docker")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """Return a host with a small workspace and a home."""
    workspace, home = tmp_path / "work", tmp_path / "home"
    for directory in ("work/.git/hooks", "work/sub", "home/data", "home/real"):
        (tmp_path / directory).mkdir(parents=True)
    for file in ("work/.env", "work/sub/.env.local", "work/sub/seen", "work/Coopfile", "home/file"):
        (tmp_path / file).touch()
    (home / "link").symlink_to(home / "real")
    return Host(1000, 1000, "me", str(home), str(workspace), str(workspace), {"TMPDIR": str(tmp_path)})


def plan(**changes: object) -> Plan:
    """Return a plan with other values at keys written with __ for the dot."""
    made = PLAN
    defaults: dict[str, object] = {"files__read": (), "files__write": (), "env": ()}
    for key, value in {**defaults, **changes}.items():
        made = with_leaf(made, key.replace("__", "."), value)
    return made


def test_what_guards_need_to_know(host: Host) -> None:
    """Of each guarded path and those above it the kind, and of globs what they match now."""
    seen = facts(plan(), host, DOCKER, inputs=(f"{host.workspace}/Coopfile",))
    below = {path[len(host.workspace) + 1 :]: found for path, found in seen.kinds.items()}
    assert below == {
        "": DIRECTORY,
        ".git": DIRECTORY,
        ".git/hooks": DIRECTORY,
        "Coopfile": FILE,
        ".env": FILE,
        "sub": DIRECTORY,
        "sub/.env.local": FILE,
    }
    assert set(seen.hidden) == {f"{host.workspace}/.env", f"{host.workspace}/sub/.env.local"}


def test_what_is_not_there_has_no_kind_and_links_are_followed(host: Host) -> None:
    """A mount's source is what it leads to."""
    seen = facts(plan(files__read=("~/link", "~/file", "~/missing")), host, DOCKER)
    assert seen.real == {f"{host.home}/link": f"{host.home}/real"}
    assert seen.kinds[f"{host.home}/real"] == DIRECTORY
    assert seen.kinds[f"{host.home}/file"] == FILE
    assert f"{host.home}/missing" not in seen.kinds


def test_kinds(tmp_path: Path) -> None:
    """What coop itself put there is told from what somebody made."""
    (tmp_path / "placeholder").mkdir()
    (tmp_path / "placeholder").chmod(stat.S_IMODE(MODE))
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    found = {
        name: kind(str(tmp_path / name)) for name in ("placeholder", "dangling", "pipe", "none", "pipe/x")
    }
    assert found == {"placeholder": PLACEHOLDER, "dangling": LINK, "pipe": FILE, "none": None, "pipe/x": None}
    assert kind(str(tmp_path)) == DIRECTORY


def test_the_tools_of_the_host_are_listed_without_an_image_only(host: Host) -> None:
    """Binds of what is there; nothing that engines write themselves; Docker's own /sbin is a directory."""
    assert facts(plan(), host, DOCKER).tools == ()
    tools = {entry.path: entry for entry in facts(plan(base__image=None), host, DOCKER).tools}
    assert tools["/usr"].kind == "bind"
    assert not set(tools) & {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}
    assert all(os.path.exists(entry.content) for entry in tools.values() if entry.kind == "bind")
    if os.path.islink("/sbin"):
        assert tools["/sbin"].kind == "directory"
        podman = {entry.path: entry for entry in facts(plan(base__image=None), host, None).tools}
        assert podman["/sbin"].kind == "link"


def test_masks_are_made_once_and_closed_to_all(tmp_path: Path) -> None:
    """They stand in for what is hidden: nobody may open them."""
    state = tmp_path / "state"
    masks = Path(make_masks(str(state)))
    assert make_masks(str(state)) == str(masks)
    modes = {path.name: path.stat().st_mode for path in masks.iterdir()}
    assert modes == {FILE: stat.S_IFREG, DIRECTORY: stat.S_IFDIR}


@pytest.mark.parametrize("what", ["content", "mode", "kind", "link", "entry"])
def test_masks_that_somebody_changed_are_made_again(tmp_path: Path, what: str) -> None:
    """What they hold, and what they lead to, would be shown in every sandbox."""
    masks = Path(make_masks(str(tmp_path)))
    file, directory = masks / FILE, masks / DIRECTORY
    if what == "content":
        file.chmod(0o600)
        file.write_text("planted")
        file.chmod(0)
    elif what == "mode":
        file.chmod(0o644)
        directory.chmod(0o755)
    elif what == "kind":
        file.unlink()
        directory.rmdir()
        file.mkdir()
        directory.touch()
    elif what == "link":
        (tmp_path / "planted").write_text("planted")
        (tmp_path / "elsewhere").mkdir()
        file.unlink()
        directory.rmdir()
        file.symlink_to(tmp_path / "planted")
        directory.symlink_to(tmp_path / "elsewhere")
    else:
        directory.chmod(0o755)
        (directory / "planted").mkdir()
        directory.chmod(0)
    make_masks(str(tmp_path))
    assert (file.lstat().st_mode, file.lstat().st_size) == (stat.S_IFREG, 0)
    assert directory.lstat().st_mode == stat.S_IFDIR
    directory.chmod(0o755)
    assert os.listdir(directory) == []
    assert what != "link" or (tmp_path / "planted").read_text() == "planted"


@pytest.mark.parametrize("what", ["socket", "pipe"])
def test_what_is_more_than_a_file_is_not_given_to_read(host: Host, what: str) -> None:
    """As on the native back end: a read-only mount does not keep from talking through it."""
    path = f"{host.home}/{what}"
    with socket.socket(socket.AF_UNIX) as listening:
        if what == "socket":
            listening.bind(path)
        else:
            os.mkfifo(path)
        with pytest.raises(CoopError, match=r"is a socket|neither a file nor a directory"):
            facts(plan(files__read=(path,)), host, DOCKER)


def test_a_protected_path_that_vanishes_is_not_left_unguarded(host: Host) -> None:
    """When its place is held, it can be missing only because somebody took it away."""
    wanted = plan(workspace__protect=("sub/kept",))
    assert f"{host.workspace}/sub/kept" not in facts(wanted, host, DOCKER).kinds
    with pytest.raises(CoopError, match="sub/kept vanished while the sandbox started"):
        facts_of(look(wanted, host, DOCKER), (), "", held=True)
    Path(host.workspace, "sub/kept").touch()
    assert facts_of(look(wanted, host, DOCKER), (), "", held=True).kinds[f"{host.workspace}/sub/kept"] == FILE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every directory")
def test_a_directory_that_is_locked_is_refused(host: Host) -> None:
    """The sandbox could open it again, and then nothing in it would be guarded."""
    locked = Path(host.workspace, ".git")
    locked.chmod(0)
    try:
        with pytest.raises(CoopError, match="cannot be searched, and what is in it cannot be guarded"):
            facts(plan(), host, DOCKER)
    finally:
        locked.chmod(0o755)


def test_masks_that_cannot_be_made(tmp_path: Path) -> None:
    """The reason is told."""
    (tmp_path / "state").touch()
    with pytest.raises(CoopError, match="cannot be made: Not a directory"):
        make_masks(str(tmp_path / "state"))
