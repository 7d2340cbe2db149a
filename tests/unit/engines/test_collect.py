"""What is seen of this machine for a rendering: kinds, links, hidden paths, and the host's own tools."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from coopfile.engines.collect import facts, kind, make_masks
from coopfile.errors import CoopError
from coopfile.native.placeholders import MODE
from coopfile.plan.bind import Host
from coopfile.plan.model import Plan
from coopfile.render.facts import DIRECTORY, FILE, LINK, PLACEHOLDER, Engine
from tests.unit.plan.samples import PLAN, with_leaf

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


def test_masks_that_cannot_be_made(tmp_path: Path) -> None:
    """The reason is told."""
    (tmp_path / "state").touch()
    with pytest.raises(CoopError, match="cannot be made: Not a directory"):
        make_masks(str(tmp_path / "state"))
