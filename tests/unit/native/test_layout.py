"""From a launch to operations, on a made-up host below a temporary directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coopfile.errors import CoopError
from coopfile.native.layout import layout
from coopfile.native.operations import (
    Bind,
    Devpts,
    Hide,
    Operation,
    Proc,
    Protect,
    Scratch,
    Symlink,
    Tool,
    Write,
)
from coopfile.native.tree import Layout
from coopfile.plan.bind import bind
from coopfile.plan.hosttools import ETC, ETC_OWN, SCRATCH, TOOLS
from coopfile.plan.launch import Host, Launch
from coopfile.plan.model import Plan, with_leaf
from tests.unit.plan.samples import PLAN


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Return a directory with a home and, in it, a workspace."""
    root = Path(os.path.realpath(tmp_path))
    (root / "home/project").mkdir(parents=True)
    (root / "home/.gitconfig").touch()
    (root / "home/.cache/go").mkdir(parents=True)
    return root


def plan(**leaves: object) -> Plan:
    """Return the sample plan with other leaves: ``files_read`` is ``files.read``."""
    made = with_leaf(with_leaf(PLAN, "files.hide", ()), "workspace.protect", (".git/hooks", "Coopfile"))
    for key, value in leaves.items():
        made = with_leaf(made, key.replace("_", ".", 1), value)
    return made


def launch(base: Path, made: Plan) -> Launch:
    """Bind a plan to the made-up host."""
    workspace = f"{base}/home/project"
    host = Host(os.geteuid(), os.getegid(), "dev", f"{base}/home", workspace, workspace, {})
    return bind(made, host, ("true",))


def laid(
    base: Path, *, inputs: tuple[str, ...] = (), private: tuple[str, ...] = (), **leaves: object
) -> Layout:
    """Lay out a plan's launch."""
    return layout(launch(base, plan(**leaves)), inputs, private)


def of(kind: type[Operation], found: Layout) -> list[Operation]:
    """Return the operations of one kind."""
    return [operation for operation in (*found.operations, *found.guards) if isinstance(operation, kind)]


def binds(found: Layout) -> dict[str, tuple[str, bool]]:
    """Return (source, writable) per target of what is mounted from the host."""
    return {
        item.target: (item.source, isinstance(item, Bind) and item.write)
        for item in found.operations
        if isinstance(item, Bind | Tool)
    }


def test_order(base: Path) -> None:
    """Places come before what is mounted in them; guards come after everything, hiding before protecting."""
    (base / "home/project/.env").touch()
    found = laid(base, files_hide=(".env",))
    kinds = [type(item) for item in found.operations]
    assert kinds.index(Scratch) < kinds.index(Devpts) < kinds.index(Proc)
    assert not {Hide, Protect} & set(kinds)
    guards = [type(item) for item in found.guards]
    assert set(guards) == {Hide, Protect}
    assert guards == sorted(guards, key=lambda kind: kind is Protect)


def test_writable_mounts(base: Path) -> None:
    """Exactly the workspace and files.write are writable; the host's tools never."""
    writable = {target for target, (_, write) in binds(laid(base)).items() if write}
    assert writable == {"/workspace", "/root/.cache/go"}
    for tool in TOOLS:
        assert not binds(laid(base)).get(tool, ("", False))[1]


def test_tools_as_links(base: Path) -> None:
    """Where the host has /bin and its like as links into /usr, so has the sandbox."""
    links = {item.path: item.target for item in of(Symlink, laid(base)) if isinstance(item, Symlink)}
    for tool in TOOLS:
        if os.path.islink(tool):
            assert links[tool] == os.readlink(tool)
        else:
            assert (tool in binds(laid(base))) == os.path.exists(tool)


def test_etc_is_listed(base: Path) -> None:
    """Of /etc only what is listed is there, and the account files are written."""
    found = laid(base)
    names = {target[5:] for target in binds(found) if target.startswith("/etc/")}
    assert names <= {*ETC, "resolv.conf"}
    written = {item.path for item in found.operations if isinstance(item, Write)}
    assert {f"/etc/{name}" for name in ETC_OWN} <= written


@pytest.mark.parametrize(("mode", "there"), [("none", False), ("host", True)])
def test_resolver(base: Path, mode: str, there: bool) -> None:
    """The resolver's configuration is there with the host's network only."""
    if not os.path.exists("/etc/resolv.conf"):
        pytest.skip("this host has no /etc/resolv.conf")
    assert ("/etc/resolv.conf" in binds(laid(base, network_mode=mode))) is there


def test_scratch(base: Path) -> None:
    """One file system of limits.tmp bytes is behind every temporary place and the home."""
    (scratch,) = of(Scratch, laid(base))
    assert isinstance(scratch, Scratch)
    assert scratch.size == PLAN.limits.tmp
    assert dict(scratch.places) == {**dict.fromkeys(SCRATCH, 0o1777), "/root": 0o700}


def test_outer_mounts_first(base: Path) -> None:
    """A mount inside another comes after it."""
    (base / "data/deep/er").mkdir(parents=True)
    found = laid(
        base, files_read=(f"{base}/data/deep/er", f"{base}/data"), files_write=(f"{base}/data/deep",)
    )
    targets = [item.target for item in of(Bind, found) if isinstance(item, Bind) and "data" in item.target]
    assert targets == [f"{base}/data", f"{base}/data/deep", f"{base}/data/deep/er"]


def test_missing_is_skipped(base: Path) -> None:
    """What the host does not have is named, and nothing is mounted there."""
    found = laid(base, files_read=("~/missing", "/no/such"))
    assert len(found.skipped) >= 2 and all(
        "not on this host" in text for text in found.skipped if "such" in text
    )
    assert "/no/such" not in binds(found)


@pytest.mark.parametrize("path", ["/proc/self", "/dev/sda", "/sys/fs", "/run/docker.sock", "/"])
def test_taken_places(base: Path, path: str) -> None:
    """Nothing of the host is mounted over what the sandbox is made of."""
    with pytest.raises(CoopError, match="the sandbox has its own"):
        laid(base, files_read=(path,))


def test_protect_and_hold(base: Path) -> None:
    """Every protected path is guarded, and its place is held on the host."""
    found = laid(base, inputs=(f"{base}/home/project/Coopfile",))
    assert [item.path for item in of(Protect, found) if isinstance(item, Protect)] == [
        ".git/hooks",
        "Coopfile",
    ]
    assert found.held == ((f"{base}/home/project", (".git/hooks", "Coopfile")),)


def test_inputs_elsewhere(base: Path) -> None:
    """A file that the plan was made of is protected wherever a writable mount shows it."""
    (base / "config").mkdir()
    found = laid(base, inputs=(f"{base}/config/coop/Coopfile",), files_write=(f"{base}/config",))
    protects = {(item.mount, item.path) for item in of(Protect, found) if isinstance(item, Protect)}
    assert (f"{base}/config", "coop/Coopfile") in protects
    assert (f"{base}/config", ("coop/Coopfile",)) in found.held


def test_inputs_given_away(base: Path) -> None:
    """A protected file, or a directory that lies in one, cannot be given with files.write."""
    (base / "home/project/Coopfile").touch()
    with pytest.raises(CoopError, match="is protected in every sandbox"):
        laid(base, inputs=(f"{base}/home/project/Coopfile",), files_write=(f"{base}/home/project/Coopfile",))


def test_private_state(base: Path) -> None:
    """coop's own state is hidden below any mount that holds it, and cannot be named itself."""
    state = f"{base}/home/.cache/coop"
    os.mkdir(state)
    found = laid(base, private=(state,), files_read=("~/.cache",))
    assert ("/root/.cache", "coop") in {
        (item.mount, item.path) for item in of(Hide, found) if isinstance(item, Hide)
    }
    for key in ("files_read", "files_write"):
        for path in (state, f"{state}/plans"):
            os.makedirs(path, exist_ok=True)
            with pytest.raises(CoopError, match="is hidden from every sandbox"):
                laid(base, private=(state,), **{key: (path,)})


def test_start_up_files(base: Path) -> None:
    """Shell start-up files are protected where files.write gives a directory that holds the home."""
    found = laid(base, files_write=(f"{base}",))
    protected = {
        item.path for item in of(Protect, found) if isinstance(item, Protect) and item.mount == str(base)
    }
    assert {"home/.bashrc", "home/.ssh", "home/.profile", "home/project/.git/hooks"} <= protected


def test_hidden_in_every_mount(base: Path) -> None:
    """A hidden file is hidden through each mount that shows it."""
    (base / "home/project/.env").touch()
    found = laid(base, files_hide=("**/.env",), files_read=(f"{base}",))
    hides = {(item.mount, item.path) for item in of(Hide, found) if isinstance(item, Hide)}
    assert {("/workspace", ".env"), (str(base), "home/project/.env")} <= hides


def test_links_in_writable_places(base: Path) -> None:
    """A source behind a link that the sandbox could have made is refused."""
    (base / "secret").mkdir()
    (base / "home/project/link").symlink_to(base / "secret")
    with pytest.raises(CoopError, match="symbolic link inside"):
        laid(base, files_read=(f"{base}/home/project/link",))


def test_landlock(base: Path) -> None:
    """Landlock's list has the same writable places as the mounts."""
    found = laid(base)
    writable = {path for path, write in found.landlock if write}
    assert writable == {"/dev", "/root", "/root/.cache/go", "/workspace", *SCRATCH}
    assert {target for target in binds(found) if target.startswith(("/workspace", "/root"))} <= dict(
        found.landlock
    ).keys()


def test_nothing_changes(base: Path) -> None:
    """Laying out looks and does not touch."""
    before = sorted(base.rglob("*"))
    laid(base, files_hide=("**/x",), files_read=("~/nothing",))
    assert sorted(base.rglob("*")) == before


def test_described(base: Path) -> None:
    """Every operation says what it does in one line."""
    for operation in (*laid(base).operations, *laid(base).guards):
        text = operation.describe()
        assert text and "\n" not in text
