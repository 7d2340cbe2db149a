"""What a plan comes to in a container: mounts and guards in their order, ids, limits, weakenings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.plan.launch import Host, Mount, inside
from coopfile.plan.model import Plan, with_leaf
from coopfile.render.container import Container, Request, container
from coopfile.render.facts import DIRECTORY, FILE, LIMITS, LINK, PLACEHOLDER, Engine, Facts
from tests.unit.plan.samples import PLAN

HOME, WORK = "/home/me", "/home/me/work"
HOST = Host(1000, 1000, "me", HOME, WORK, WORK, {})
DOCKER = Engine("docker", "docker")
PODMAN = Engine("podman", "podman", default_runtime="crun")
_NAMES = ("a", "a/b", "a/b/c", "a/d", "e", "e/b")  # below the workspace
_PLACES = ("work", *(f"work/{name}" for name in _NAMES))
NARROW: dict[str, object] = {
    "workspace__protect": (),
    "files__read": (),
    "files__write": (),
    "files__hide": (),
    "sandbox__runtime": None,
    "env": (),
}


def plan(**changes: object) -> Plan:
    """Return a plan that guards nothing, with other values at keys written with __ for the dot."""
    made = PLAN
    for key, value in {**NARROW, **changes}.items():
        made = with_leaf(made, key.replace("__", "."), value)
    return made


def made(
    wanted: Plan,
    kinds: Mapping[str, str] | None = None,
    *,
    engine: Engine = DOCKER,
    host: Host = HOST,
    held: bool = True,
    **facts: object,
) -> Container:
    """Return the container of a plan where paths have ``kinds``; relative ones are the workspace's."""
    everything = {WORK: DIRECTORY}
    everything.update(
        {f"{WORK}/{path}".replace(f"{WORK}//", "/"): kind for path, kind in (kinds or {}).items()}
    )
    seen = Facts(host, engine=engine, kinds=everything, masks="/state/masks", **facts)  # type: ignore[arg-type]
    return container(wanted, seen, Request(("true",), held=held))


def mounts(found: Container) -> list[tuple[str, str, str]]:
    """Return target, source and rw or ro of every mount but the workspace's own, in order."""
    assert found.mounts[0].source == WORK
    return [(item.target, item.source, "rw" if item.write else "ro") for item in found.mounts[1:]]


# Guards


def test_what_is_on_the_way_to_a_protected_path_cannot_be_renamed() -> None:
    """Every directory on the way is mounted on itself, the outer before the inner."""
    kinds = {"a": DIRECTORY, "a/b": DIRECTORY, "a/b/c": FILE}
    assert mounts(made(plan(workspace__protect=("a/b/c",)), kinds)) == [
        ("/workspace/a", f"{WORK}/a", "rw"),
        ("/workspace/a/b", f"{WORK}/a/b", "rw"),
        ("/workspace/a/b/c", f"{WORK}/a/b/c", "ro"),
    ]


def test_nested_guards() -> None:
    """A protected path on the way to another needs no pin, and what is below a hidden one nothing at all."""
    kinds = {"a": DIRECTORY, "a/b": DIRECTORY, "a/b/c": FILE, "h": DIRECTORY, "h/x": FILE}
    found = made(plan(workspace__protect=("a", "a/b/c", "h/x")), kinds, hidden=(f"{WORK}/h",))
    assert mounts(found) == [
        ("/workspace/h", "/state/masks/directory", "ro"),
        ("/workspace/a", f"{WORK}/a", "ro"),
    ]


@pytest.mark.parametrize("order", [("a", "a/b"), ("a/b", "a")])
def test_nested_guards_in_any_order(order: tuple[str, str]) -> None:
    """The outer one holds, whichever is named first."""
    kinds = {"a": DIRECTORY, "a/b": FILE}
    found = mounts(made(plan(workspace__protect=order), kinds))
    assert ("/workspace/a", f"{WORK}/a", "ro") in found
    assert not [item for item in found if item[2] == "rw"]


@pytest.mark.parametrize("protect", [("a",), ("a", "a/b/c/d"), ("a/b/c/d", "a")])
@pytest.mark.parametrize("hidden", [(), (f"{WORK}/a/b/c/s",)])
def test_the_way_to_a_guard_below_what_is_protected_is_not_writable(
    protect: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    """What could be renamed there is held by the outer guard; a pin would be a hole in it."""
    kinds = {"a": DIRECTORY, "a/b": DIRECTORY, "a/b/c": DIRECTORY, "a/b/c/d": FILE, "a/b/c/s": FILE}
    found = mounts(made(plan(workspace__protect=protect), kinds, hidden=hidden))
    assert found[0] == ("/workspace/a", f"{WORK}/a", "ro")
    assert {mode for _, _, mode in found} == {"ro"}
    assert (("/workspace/a/b/c/s", "/state/masks/file", "ro") in found) is bool(hidden)


def test_what_is_hidden_and_protected_is_hidden() -> None:
    """And below what is protected it is hidden all the same, after it."""
    kinds = {"p": DIRECTORY, "p/s": FILE, "both": FILE}
    hidden = (f"{WORK}/p/s", f"{WORK}/both")
    found = mounts(made(plan(workspace__protect=("p", "both")), kinds, hidden=hidden))
    assert sorted(found) == [
        ("/workspace/both", "/state/masks/file", "ro"),
        ("/workspace/p", f"{WORK}/p", "ro"),
        ("/workspace/p/s", "/state/masks/file", "ro"),
    ]
    assert found[-1][0] == "/workspace/p/s"


@pytest.mark.parametrize(
    ("kind", "mask"), [(FILE, "file"), (DIRECTORY, "directory"), (PLACEHOLDER, "directory")]
)
def test_what_hides_is_of_the_same_kind(kind: str, mask: str) -> None:
    """Engines mount files on files only."""
    found = made(plan(), {"s": kind}, hidden=(f"{WORK}/s",))
    assert mounts(found) == [("/workspace/s", f"/state/masks/{mask}", "ro")]


@pytest.mark.parametrize("kind", [FILE, PLACEHOLDER])
def test_a_guard_ends_where_a_path_does(kind: str) -> None:
    """A file, or what holds a place, where a directory was expected is itself protected."""
    kinds = {"a": kind}
    assert mounts(made(plan(workspace__protect=("a/b/c",)), kinds)) == [("/workspace/a", f"{WORK}/a", "ro")]


@pytest.mark.parametrize("path", ["a", "a/b"])
def test_a_link_on_the_way_is_refused(path: str) -> None:
    """What it stands for could be exchanged."""
    kinds = {"a": LINK} if path == "a" else {"a": DIRECTORY, "a/b": LINK}
    with pytest.raises(CoopError, match=f"{WORK}/{path} is a symbolic link"):
        made(plan(workspace__protect=("a/b/c",)), kinds)


def test_what_is_missing_is_held_or_a_hole() -> None:
    """Nothing is mounted for it; without somebody to hold its place it is more than the plan gives."""
    wanted = plan(workspace__protect=("a/b",))
    assert [hole.key for hole in made(wanted, {"a": DIRECTORY}, held=False).holes] == ["workspace.protect"]
    found = made(wanted, {"a": DIRECTORY})
    assert found.holes == ()
    assert mounts(found) == [("/workspace/a", f"{WORK}/a", "rw")]


# Mounts that hold one another


def test_a_read_only_mount_inside_a_writable_one_is_kept_in_its_place() -> None:
    """What leads to it through the writable one cannot be renamed, and does not cover it."""
    kinds = {"/data/src": DIRECTORY, "/data/src/a": DIRECTORY, "/data/src/a/keep": DIRECTORY}
    found = made(plan(files__write=("/data/src",), files__read=("/data/src/a/keep",)), kinds)
    assert mounts(found) == [
        ("/data/src", "/data/src", "rw"),
        ("/data/src/a", "/data/src/a", "rw"),
        ("/data/src/a/keep", "/data/src/a/keep", "ro"),
    ]


def test_a_read_only_mount_inside_the_workspace_at_its_own_path() -> None:
    """workspace.path = "host" puts it below the workspace's own mount."""
    kinds = {"lib": DIRECTORY, "lib/vendor": DIRECTORY}
    found = made(plan(workspace__path="host", files__read=(f"{WORK}/lib/vendor",)), kinds)
    assert mounts(found) == [
        (f"{WORK}/lib", f"{WORK}/lib", "rw"),
        (f"{WORK}/lib/vendor", f"{WORK}/lib/vendor", "ro"),
    ]


def test_a_read_only_mount_inside_the_workspace_at_another_path() -> None:
    """It is read-only there and, through the workspace, in its own place too."""
    kinds = {"lib": DIRECTORY, "lib/vendor": DIRECTORY}
    found = made(plan(files__read=(f"{WORK}/lib/vendor",)), kinds)
    assert sorted(mounts(found)) == [
        (f"{WORK}/lib/vendor", f"{WORK}/lib/vendor", "ro"),
        ("/workspace/lib", f"{WORK}/lib", "rw"),
        ("/workspace/lib/vendor", f"{WORK}/lib/vendor", "ro"),
    ]


@given(
    read=st.sets(st.sampled_from(_PLACES[1:]), max_size=2),
    write=st.sets(st.sampled_from(_PLACES), max_size=2),
    protect=st.sets(st.sampled_from(_NAMES), max_size=2),
    hide=st.sets(st.sampled_from(_NAMES), max_size=2),
    own=st.booleans(),
)
def test_what_is_seen_at_every_path_is_what_the_plan_gives(
    read: set[str], write: set[str], protect: set[str], hide: set[str], own: bool
) -> None:
    """Made one after another as an engine does that sorts nothing, no mount covers another by mistake."""
    outer = WORK.rpartition("/")[0]
    read, write = ({f"{outer}/{path}" for path in paths} for paths in (read, write))
    hidden = tuple(f"{WORK}/{path}" for path in sorted(hide))
    wanted = plan(
        workspace__path="host" if own else "/workspace",
        workspace__protect=tuple(sorted(protect)),
        files__read=tuple(sorted(read)),
        files__write=tuple(sorted(write)),
    )
    kinds = {f"{outer}/{path}": DIRECTORY for path in ("", *_PLACES)}
    try:
        found = made(wanted, {path.rstrip("/"): kind for path, kind in kinds.items()}, hidden=hidden)
    except CoopError:
        return  # such as a mount of what is hidden
    targets = [item.target for item in found.mounts]
    assert len(targets) == len(set(targets))
    place = WORK if own else "/workspace"
    for name in _NAMES:
        seen = _seen(found.mounts, f"{place}/{name}")
        path = f"{WORK}/{name}"
        if any(inside(path, item) for item in hidden):
            assert seen.source.startswith("/state/masks")
            continue
        kept = any(inside(name, item) for item in protect)
        if own:  # the innermost path that is listed decides, and reading before writing
            listed = [item for item in (WORK, *write, *read) if inside(path, item)]
            kept = kept or max(listed, key=len) in read
        else:
            kept = kept or any(inside(path, item) for item in read)
        assert (seen.source, seen.write) == (path, not kept)
        # Nobody can put another directory in the place of one that leads to a guard.
        above = _seen(found.mounts, f"{place}/{name}".rpartition("/")[0])
        if above.write and any(inside(item, name) for item in (*protect, *hide)):
            assert f"{place}/{name}" in targets


def _seen(mounts: Sequence[Mount], path: str) -> Mount:
    """Return the mount by which a path is seen, with its source there."""
    seen: Mount | None = None
    for item in mounts:
        if inside(path, item.target):
            seen = item.replace(source=item.source + path[len(item.target) :])
    assert seen is not None
    return seen


def test_a_path_to_read_and_to_write_is_read_only() -> None:
    """Engines refuse two mounts at one place; reading wins, as on the native back end."""
    found = made(plan(files__read=("/data",), files__write=("/data",)), {"/data": DIRECTORY})
    assert [item for item in mounts(found) if item[0] == "/data"] == [("/data", "/data", "ro")]


def test_no_two_mounts_at_one_place() -> None:
    """Whatever is guarded through whatever mount: engines refuse duplicates."""
    kinds = {
        "/data": DIRECTORY,
        "/data/in": DIRECTORY,
        "/data/in/deep": DIRECTORY,
        HOME: DIRECTORY,
        "a": DIRECTORY,
        "a/b": FILE,
    }
    wanted = plan(
        workspace__protect=("a/b", "a"),
        files__write=("/data", "/data/in/deep"),
        files__read=("/data/in",),
        workspace__path="host",
    )
    targets = [item.target for item in made(wanted, kinds, hidden=(f"{WORK}/a/b",)).mounts]
    assert len(targets) == len(set(targets))


def test_guards_hold_through_every_mount() -> None:
    """A mount that holds the workspace shows it a second time, guarded a second time."""
    kinds = {"/home/me/all": DIRECTORY}
    host = HOST.replace(workspace="/home/me/all/work", directory="/home/me/all/work")
    place = host.workspace
    seen = {place: DIRECTORY, "/home/me/all": DIRECTORY, f"{place}/p": FILE, f"{place}/s": FILE, **kinds}
    wanted = plan(workspace__protect=("p",), files__write=("/home/me/all",))
    facts = Facts(host, engine=DOCKER, kinds=seen, masks="/m", hidden=(f"{place}/s",))
    found = container(wanted, facts, Request(("true",), held=True)).mounts
    assert Mount(f"{place}/p", "/workspace/p", False) in found
    assert Mount(f"{place}/p", f"{place}/p", False) in found
    assert Mount("/m/file", "/workspace/s", False) in found
    assert Mount("/m/file", f"{place}/s", False) in found
    assert Mount(place, place, True) in found  # cannot be moved away


@pytest.mark.parametrize("path", ["/proc/sys", "/dev/shm/x", "/sys"])
def test_what_the_sandbox_has_of_its_own_is_not_mounted_over(path: str) -> None:
    """Nothing of the host's /proc, /dev and /sys."""
    with pytest.raises(CoopError, match=f"cannot be mounted at {path}: the sandbox has its own"):
        made(plan(files__read=(path,)), {path: DIRECTORY})


def test_what_the_host_does_not_have_is_skipped() -> None:
    """And told of."""
    assert made(plan(files__read=("/none",))).skipped == ("/none: not on this host",)


def test_the_account_files_are_mounted_over_the_images() -> None:
    """Read-only, below everything of the plan's."""
    found = made(plan(), accounts="/state/accounts/x")
    assert found.mounts[:2] == (
        Mount("/state/accounts/x/passwd", "/etc/passwd", False),
        Mount("/state/accounts/x/group", "/etc/group", False),
    )


# Who one is inside

ROOTLESS = {"rootless": True}
REMAPPED = {"remapped": True}


@pytest.mark.parametrize(
    ("wanted", "uid", "engine", "user", "mapping", "weakened"),
    [
        ("root", 1000, DOCKER, "1000:1000", None, True),
        ("me", 1000, DOCKER, "1000:1000", None, False),
        ("root", 0, DOCKER, "0:0", None, False),
        ("me", 0, DOCKER, "0:1000", None, False),
        ("root", 1000, DOCKER.replace(**REMAPPED), "1000:1000", "host", True),
        ("me", 1000, DOCKER.replace(**REMAPPED), "1000:1000", "host", False),
        ("root", 0, DOCKER.replace(**REMAPPED), "0:0", "host", False),
        ("root", 1000, DOCKER.replace(**ROOTLESS), "0:0", None, False),
        ("me", 1000, DOCKER.replace(**ROOTLESS), "0:0", None, True),
        ("root", 1000, PODMAN.replace(**ROOTLESS), "0:0", None, False),
        ("me", 1000, PODMAN.replace(**ROOTLESS), "1000:1000", "keep-id", False),
        ("root", 0, PODMAN, "0:0", None, False),
    ],
)
def test_files_that_are_made_inside_are_the_callers(
    wanted: str, uid: int, engine: Engine, user: str, mapping: str | None, weakened: bool
) -> None:
    """Each engine has its own way there, and where it cannot be who the plan says, that is told."""
    found = made(plan(session__user=wanted), engine=engine, host=HOST.replace(uid=uid))
    assert (found.user, found.identities) == (user, mapping)
    assert ("session.user" in [item.key for item in found.weakenings]) is weakened


@pytest.mark.parametrize("system", ["darwin", "windows"])
@pytest.mark.parametrize(("wanted", "user"), [("root", "0:0"), ("me", "1000:1000")])
def test_in_a_virtual_machine_one_is_whom_the_plan_says(system: str, wanted: str, user: str) -> None:
    """Its file sharing gives the caller's files to the caller, whoever is inside."""
    found = made(plan(session__user=wanted), system=system)
    assert (found.user, found.identities) == (user, None)
    assert "session.user" not in [item.key for item in found.weakenings]


# Limits


def test_limits_that_the_engine_holds_are_handed_over() -> None:
    """All of them, with swap counted too."""
    found = made(plan())
    assert (found.memory, found.swap, found.cpus, found.pids) == (2**31, True, 2000, 512)
    assert [item.key for item in found.weakenings if item.key.startswith("limits.")] == ["limits.tmp"]


@pytest.mark.parametrize(
    ("limit", "key"),
    [("memory", "limits.memory"), ("swap", "limits.memory"), ("cpu", "limits.cpus"), ("pids", "limits.pids")],
)
def test_a_limit_that_the_engine_cannot_hold_is_told(limit: str, key: str) -> None:
    """And not asked for."""
    limits = tuple(name for name in LIMITS if name != limit)
    found = made(plan(), engine=DOCKER.replace(limits=limits))
    assert key in [item.key for item in found.weakenings]
    values = {"memory": found.memory, "swap": found.swap or None, "cpu": found.cpus, "pids": found.pids}
    assert values[limit] is None


@pytest.mark.parametrize(
    "engine",
    [
        DOCKER.replace(runtime="runsc"),
        DOCKER.replace(default_runtime="runsc"),
        PODMAN.replace(runtime="runsc"),
    ],
)
def test_gvisor_is_not_told_how_many_processes(engine: Engine) -> None:
    """The engine would count the threads of its kernel, which does not start with few."""
    found = made(plan(), engine=engine)
    assert found.pids is None
    assert "limits.pids" in [item.key for item in found.weakenings]
    assert "seccomp" not in [item.key for item in found.weakenings]


def test_an_engine_that_filters_no_system_calls_is_weaker() -> None:
    """Unless its kernel is not the host's."""
    engine = DOCKER.replace(seccomp=False)
    assert "seccomp" in [item.key for item in made(plan(), engine=engine).weakenings]
    assert "seccomp" not in [
        item.key for item in made(plan(), engine=engine.replace(runtime="runsc")).weakenings
    ]


# Scratch space


def test_scratch_space_is_of_the_plans_size_and_the_home_is_the_users() -> None:
    """All but the home may be used by everybody inside; /dev/shm is apart."""
    found = made(plan(session__user="me", limits__tmp=4096))
    home = found.scratch[-1]
    assert (home.target, home.mode, home.uid, home.gid) == ("/home/me", 0o700, 1000, 1000)
    assert {item.size for item in found.scratch} == {found.shm} == {4096}
    assert {item.mode for item in found.scratch[:-1]} == {0o1777}
    assert "/dev/shm" not in [item.target for item in found.scratch]
    assert {"/tmp", "/var/tmp", "/run"} <= {item.target for item in found.scratch}


def test_the_program_needs_a_name() -> None:
    """Engines would take an empty one for the image's own command."""
    with pytest.raises(CoopError, match="the name of the program is empty"):
        container(plan(), Facts(HOST, engine=DOCKER, kinds={WORK: DIRECTORY}), Request(("",)))


@pytest.mark.parametrize("name", ["", "-x", "..", "Ünï cödé", "a" * 200, "a/../b", "$(id)", "a\nb"])
def test_names_of_containers_are_what_engines_take(name: str) -> None:
    """[a-zA-Z0-9][a-zA-Z0-9_.-]*, and short enough for a host name."""
    host = HOST.replace(workspace=f"/w/{name}", directory=f"/w/{name}")
    found = container(
        plan(), Facts(host, engine=DOCKER, kinds={host.workspace: DIRECTORY}), Request(("x",), "0" * 12)
    )
    assert found.name.startswith("coop-")
    assert found.name.endswith(f"-{'0' * 12}")
    assert len(found.name) <= 63
    assert all(character.isascii() and (character.isalnum() or character == "-") for character in found.name)


def test_what_is_mounted_below_read_only_mounts() -> None:
    """It is mounted read-only, too, but where something is mounted over it, or the plan has it written."""
    found = made(
        plan(files__read=("/srv",), files__write=("/srv/own", "/data"), workspace__protect=("kept",)),
        {"/srv": DIRECTORY, "/srv/own": DIRECTORY, "/data": DIRECTORY, "kept": DIRECTORY},
        mounted=(
            "/srv/a",
            "/srv/a/b",
            "/srv/own",
            "/srv/own/c",
            "/srvant",
            "/data/d",
            f"{WORK}/e",
            f"{WORK}/kept/f",
        ),
    )
    below = [
        mount for mount in found.mounts if mount.source.rpartition("/")[2] in ("a", "b", "c", "d", "e", "f")
    ]
    assert [(mount.source, mount.target, mount.write) for mount in below] == [
        ("/srv/a", "/srv/a", False),
        ("/srv/a/b", "/srv/a/b", False),
        (f"{WORK}/kept/f", "/workspace/kept/f", False),
    ]
