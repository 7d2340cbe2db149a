"""Plans as argv of Apple's ``container``: what the reader of argv makes of them is what the plan says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from coopfile.compiling import Request as Compile
from coopfile.compiling import compile_project
from coopfile.errors import CoopError
from coopfile.language.items import ImageReference, LocalImage, PublishedPort, Variable
from coopfile.plan.bind import bind
from coopfile.plan.canonical import digest
from coopfile.plan.launch import Mount, Weakening, expand
from coopfile.plan.model import Plan, with_leaf
from coopfile.render import apple
from coopfile.render.container import Container, Request, container
from coopfile.render.facts import DIRECTORY, FILE, Engine, Facts
from tests.unit.plan.samples import PLAN
from tests.unit.plan.strategies import PLANS
from tests.unit.render.apple.checker import Call, RefusedError, World, read
from tests.unit.render.apple.machine import is_mount_point, seen
from tests.unit.render.apple.macs import ENGINE, HIDDEN, HOME, WORKSPACE, facts, host, shown, world

ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = sorted((ROOT / "examples").glob("*Coopfile"))
DEBIAN = ImageReference("docker.io", "library/debian", "bookworm-slim")

# Small: an image of its own, nothing installed, nothing published.
SMALL = PLAN.replace(
    packages=PLAN.packages.replace(apt=()),
    setup=PLAN.setup.replace(run=()),
    agent=PLAN.agent.replace(install=None),
    sandbox=PLAN.sandbox.replace(runtime=None),
)


def rendered(
    plan: Plan, machine: Facts | None = None, request: Request | None = None
) -> tuple[Container, Call, World, Facts]:
    """Return a plan's container, and what the reader of argv makes of its ``run``."""
    machine = facts(plan) if machine is None else machine
    made = container(plan, machine, request or Request(owner="501-1234"))
    there = world(machine, made)
    return made, read(apple.run(made, machine), there), there, machine


def says_what_the_plan_says(plan: Plan, machine: Facts, call: Call, there: World) -> None:
    """Fail unless an argv means what a plan says, with a weakening for what it cannot."""
    launch = bind(plan, machine.host, ())
    # The sandbox as a whole.
    assert call.flags >= {"rm", "interactive", "init", "read-only"}
    assert call.values["cap-drop"] == ["ALL"]
    assert "cap-add" not in call.values
    assert call.process(["/image/entry"]) == launch.argv
    assert call.one("workdir") == launch.directory
    assert call.one("user") == f"{launch.uid}:{launch.gid}"
    assert dict(call.values["label"])["coop.plan"] == digest(plan)
    # Network.
    assert call.network == {"none": "none", "veth": "default"}[plan.network.mode]
    published = plan.network.publish if plan.network.mode == "veth" else ()
    assert {(port.address, port.host, port.sandbox) for port in published} == {
        port[:3] for port in call.values.get("publish", ())
    }
    # Limits.
    assert plan.limits.memory - 2**20 < call.one("memory") <= plan.limits.memory
    ulimits = {kind: (soft, hard) for kind, soft, hard in call.values["ulimit"]}
    assert ulimits == {"core": (0, 0), "nproc": (plan.limits.pids, plan.limits.pids)}
    if plan.limits.cpus is not None:
        assert 1000 <= call.one("cpus") * 1000 <= plan.limits.cpus
    assert call.one("shm-size") == plan.limits.tmp
    for path in ("/tmp", "/var/tmp", "/run", launch.home):
        (scratch,) = [show for show in call.values["mount"] if show.target == path]
        assert scratch.kind == "tmpfs"
        size, mode = scratch.options
        assert plan.limits.tmp - 2**20 < int(size.removeprefix("size=")) <= plan.limits.tmp
        assert mode in (("mode=700",) if path == launch.home and launch.uid == 0 else ("mode=1777",))
    # Environment: what is the host's is named, never said.
    inherited = dict(launch.inherited)
    assert call.environment == {
        name: None if name in inherited else value for name, value in launch.environment.items()
    }
    # Files.
    workspace = launch.mounts[0].target
    for mount in launch.mounts:
        found = seen(call, there, mount.target)
        # What is given both read-only and writable is read-only.
        write = all(other.write for other in launch.mounts if other.target == mount.target)
        if mount.source in machine.kinds and mount.source not in HIDDEN:
            assert (found.host, found.write) == (mount.source, write), mount
    for path in machine.hidden:
        assert seen(call, there, path.replace(WORKSPACE, workspace)).host is None
    for path in launch.protect:
        if f"{WORKSPACE}/{path}" in machine.kinds:
            assert not seen(call, there, f"{workspace}/{path}").write, path
            held = path
            while held := held.rpartition("/")[0]:
                assert is_mount_point(call, there, f"{workspace}/{held}"), held
    assert not seen(call, there, "/etc/passwd").write


@pytest.mark.parametrize("network", ["none", "veth"])
@pytest.mark.parametrize("user", ["root", "me"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example(path: Path, user: str, network: str) -> None:
    """An example on an image, for each user and network, is the sandbox that it asks for."""
    plan = compile_project(Compile(str(path.parent), file=str(path))).plan
    image = plan.base.image if isinstance(plan.base.image, ImageReference) else DEBIAN
    plan = with_leaf(with_leaf(plan, "session.user", user), "network.mode", network)
    plan = with_leaf(plan, "base.image", image)
    made, call, there, machine = rendered(plan)
    assert call.subject == made.image
    says_what_the_plan_says(plan, machine, call, there)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_as_they_are(path: Path, snapshot: SnapshotAssertion) -> None:
    """An example is refused for a reason, or comes to the reviewed argv."""
    plan = compile_project(Compile(str(path.parent), file=str(path))).plan
    machine = facts(plan)
    try:
        made = container(plan, machine, Request())
        argv = apple.run(made, machine)
    except CoopError as error:
        assert (error.message, error.remedy) == snapshot
    else:
        read(argv, world(machine, made))
        assert shown(argv) == snapshot


@pytest.mark.parametrize(
    ("name", "make"),
    {
        "run": lambda made, machine: apple.run(made, machine),
        "terminal": lambda made, machine: apple.run(made.replace(terminal=True), machine),
        "create": lambda made, machine: apple.create(made, machine),
        "keep": lambda made, machine: apple.keep(made, machine),
        "execute": lambda made, machine: apple.execute(made),
        "start": lambda made, machine: apple.start(made, made.name),
        "stop": lambda made, machine: apple.stop(made.engine, made.name),
        "remove": lambda made, machine: apple.remove(made.engine, made.name),
        "inspect": lambda made, machine: apple.inspect_image(made.engine, made.image),
        "build": lambda made, machine: apple.build(made.engine, made.image, "veth", "/private/tmp/x"),
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_verbs(
    name: str, make: Callable[[Container, Facts], tuple[str, ...]], snapshot: SnapshotAssertion
) -> None:
    """Each verb is the reviewed argv, and one that the command line takes."""
    machine = facts(SMALL)
    made = container(SMALL, machine, Request(argv=("sh", "-c", "echo a b"), owner="501-1234"))
    argv = make(made, machine)
    read(argv, world(machine, made))
    assert shown(argv) == snapshot


def test_a_kept_container_waits_whatever_the_image_starts() -> None:
    """A kept container sleeps; the command, its terminal and its streams come with ``execute``."""
    machine = facts(SMALL)
    made = container(SMALL, machine, Request(argv=("-x", "--", "y"), terminal=True))
    kept = read(apple.keep(made, machine), world(machine, made))
    assert kept.process(["/image/entry"]) == ("sleep", "infinity")
    assert {"detach"} <= kept.flags and not {"rm", "tty", "interactive"} & kept.flags
    call = read(apple.execute(made.replace(argv=("sh", "--", "y"))))
    assert (call.subject, call.command) == (kept.one("name"), ("sh", "--", "y"))
    assert call.flags == {"interactive", "tty"}
    assert call.environment == kept.environment


@given(PLANS)
@example(SMALL.replace(files=SMALL.files.replace(read=("~/a", "~/a/b"), write=("~/a/b",))))
@example(SMALL.replace(files=SMALL.files.replace(read=("~/a",), write=("~/a/b",))))
@settings(max_examples=150)
def test_any_plan(plan: Plan) -> None:
    """Whatever a plan says, its argv is taken and means it, or it is refused."""
    machine = facts(plan)
    try:
        made = container(plan, machine, Request())
        argv = apple.run(made, machine)
        weaker = apple.weakenings(made, machine)
    except CoopError:
        return
    there = world(machine, made)
    says_what_the_plan_says(plan, machine, read(argv, there), there)
    keys = {weakening.key for weakening in weaker}
    assert ("limits.cpus" in keys) == (plan.limits.cpus is None or plan.limits.cpus % 1000 != 0)


# With a bias to what separates, quotes, begins options, or combines.
_AWKWARD = ",=:-/ \t\n\"'\\$\u0301\u0600\u200d\u00a0\U0001f3fbé世x"
HOSTILE = st.text(
    st.sampled_from(_AWKWARD) | st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6
)
NAME = HOSTILE.map(lambda name: name.replace("/", "_")).filter(lambda name: name not in ("", ".", ".."))


@given(HOSTILE, st.lists(HOSTILE, min_size=1, max_size=3))
@example("\u0301", ["a"])
@example("a=b=c", ["-x", "--", "--rm"])
@example("", ["--entrypoint"])
@example("", ["\u0301x"])
def test_hostile_words_arrive(value: str, argv: list[str]) -> None:
    """Values and commands arrive as they are, or are refused."""
    plan = SMALL.replace(env=(Variable("A", value, None),))
    try:
        made, call, _, _ = rendered(plan, request=Request(argv=tuple(argv)))
    except CoopError:
        combines = [text for text in (value, argv[0]) if text and not text[0].isascii()]
        assert combines or not argv[0]
        return
    assert call.environment["A"] == value
    assert call.process(["/image/entry"]) == tuple(argv)
    assert dict(made.environment)["A"] == value


@given(NAME, NAME, st.booleans(), st.booleans())
@example("a,b", "c=d", True, True)
@example("a:b", "c", True, False)
@example("a:b", "c", False, False)
@example("a\u0600", "b", True, False)
@example("a", "b\u0600", True, False)
@example("a", "c:d", True, False)
@example("a", "b ", False, False)
def test_hostile_paths_arrive(project: str, name: str, directory: bool, write: bool) -> None:
    """A project and a path with any name are mounted as they are and guarded, or refused."""
    workspace, given_path = f"{HOME}/{project}", f"/opt/x/{name}"
    plan = with_leaf(with_leaf(SMALL, "workspace.path", "host"), "workspace.protect", (name,))
    plan = plan.replace(files=SMALL.files.replace(read=(), write=()))
    plan = with_leaf(plan, "files.write" if write else "files.read", (given_path,))
    kinds = {workspace: DIRECTORY, given_path: DIRECTORY if directory else FILE, f"{workspace}/{name}": FILE}
    kinds[f"{workspace}/{name}2"] = DIRECTORY
    machine = Facts(
        host=host(workspace),
        system="darwin",
        engine=ENGINE,
        kinds=kinds,
        hidden=(f"{workspace}/{name}2",),
        masks="/private/masks",
    )
    try:
        _, call, there, _ = rendered(plan, machine)
    except CoopError:
        assert not (project.isalnum() and name.isalnum() and (project + name).isascii())
        return
    assert seen(call, there, f"{workspace}/not-guarded").host == f"{workspace}/not-guarded"
    assert seen(call, there, f"{workspace}/not-guarded").write
    assert seen(call, there, f"{workspace}/{name}").host == f"{workspace}/{name}"
    assert not seen(call, there, f"{workspace}/{name}").write
    assert seen(call, there, f"{workspace}/{name}2").host is None
    found = seen(call, there, given_path)
    assert (found.host, found.write) == (given_path, write)


def changed(key: str, value: object) -> Plan:
    """Return the small plan with another value at a key."""
    return with_leaf(SMALL, key, value)


def _ports(*ports: tuple[int, int]) -> Plan:
    plan = changed("network.mode", "veth")
    return with_leaf(plan, "network.publish", tuple(PublishedPort("127.0.0.1", *port) for port in ports))


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (changed("network.mode", "host"), "machine of its own"),
        (changed("network.mode", "proxy"), "proxy"),
        (changed("base.image", None), "do not run in a container"),
        (changed("base.image", LocalImage("oci", "images/base")), "is in a file"),
        (changed("limits.memory", 200 * 2**20 - 1), "no less than 200 MiB"),
        (changed("limits.cpus", 999), "0.999 cannot be had"),
        (_ports((1, 80)), "from 2"),
        (_ports((80, 80), (80, 81)), "for one address only"),
        (_ports(*((1000 + number, 80) for number in range(65))), "no more than 64"),
        (
            with_leaf(changed("files.read", ("~/.x",)), "files.write", ("~/.x/a.toml",)),
            "cannot both be given",
        ),
        (with_leaf(changed("files.read", ("~/a.x",)), "files.write", ("~/b.x",)), "not both"),
        (changed("env", (Variable("A", "\u0301", None),)), "env.A"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_had_is_refused(plan: Plan, why: str) -> None:
    """What Apple's command line cannot do is an error that says so."""
    with pytest.raises(CoopError) as raised:
        rendered(plan)
    assert why in raised.value.message


@pytest.mark.parametrize("key", ["workspace.protect", "files.read"])
def test_text_that_is_not_utf8_is_refused(key: str) -> None:
    """A name of other bytes than UTF-8 would arrive as another name."""
    path = "x\udcff" if key == "workspace.protect" else "/x\udcff"
    with pytest.raises(CoopError, match="UTF-8"):
        rendered(changed(key, (path,)))


def test_a_label_has_one_equals_sign() -> None:
    """A label's value with an equals sign would be refused by the command line."""
    with pytest.raises(CoopError, match="two signs"):
        rendered(SMALL, request=Request(owner="a=b"))


@pytest.mark.parametrize("version", ["1.2.0", "0.12.3", "container CLI version 1.1.0 (build: release)"])
def test_an_older_command_line_is_refused(version: str) -> None:
    """A command line without the options for guards is refused, with what is needed."""
    machine = facts(SMALL).replace(engine=ENGINE.replace(version=version))
    with pytest.raises(CoopError) as raised:
        rendered(SMALL, machine)
    assert raised.value.remedy == "update it to 1.2.1 or newer"


@pytest.mark.parametrize("version", ["", "1.2.1", "1.10.0", "container CLI version 2.0 (build: release)"])
def test_a_newer_command_line_is_used(version: str) -> None:
    """The first version that will do, newer ones, and one that is not known are rendered for."""
    machine = facts(SMALL).replace(engine=ENGINE.replace(version=version))
    assert rendered(SMALL, machine)[1].verb == "run"


@pytest.mark.parametrize("name", ["", "-a", "--all", "a", "a b", "a" * 64, "a/b", "a\n"])
def test_what_is_no_name_is_refused(name: str) -> None:
    """Only the name of a container is passed on as one."""
    for verb in (apple.stop, apple.remove):
        with pytest.raises(CoopError):
            verb(ENGINE, name)
    with pytest.raises(RefusedError):
        read(["container", "delete", "--force", name])


def test_a_read_only_path_in_the_project_stays_read_only() -> None:
    """What files.read gives inside the project is not made writable by the guards around it."""
    plan = with_leaf(changed("workspace.path", "host"), "files.read", (f"{WORKSPACE}/infra",))
    plan = with_leaf(plan, "workspace.protect", ("infra/prod.tf",))
    _, call, there, _ = rendered(plan)
    assert not seen(call, there, f"{WORKSPACE}/infra/staging.tf").write
    assert not seen(call, there, f"{WORKSPACE}/infra/prod.tf").write


def listed(found: tuple[Weakening, ...]) -> list[tuple[str, str, str | None]]:
    """Return weakenings as plain data."""
    return [(weakening.key, weakening.text, weakening.remedy) for weakening in found]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session.user", "root"),
        ("session.user", "me"),
        ("limits.cpus", None),
        ("limits.cpus", 2500),
        ("sandbox.runtime", "runsc"),
        ("files.read", ("~/.gitconfig", "/opt/data")),
        ("files.write", ("~/notes.txt", "~/more.txt")),
    ],
)
def test_weakenings(key: str, value: object, snapshot: SnapshotAssertion) -> None:
    """What cannot be kept is listed, with what helps."""
    plan = with_leaf(changed("files.read", ()), key, value)
    machine = facts(plan)
    made = container(plan, machine, Request())
    assert listed(apple.weakenings(made, machine)) == snapshot


def test_guards_are_holes_where_case_is_ignored(snapshot: SnapshotAssertion) -> None:
    """Guarded paths have other spellings on a Mac, which is said; without guards there is none."""
    machine = facts(SMALL)
    assert listed(apple.holes(container(SMALL, machine, Request()), machine)) == snapshot
    bare = facts(changed("workspace.protect", ()), hidden=()).replace(inputs=())
    made = container(changed("workspace.protect", ()), bare, Request())
    assert apple.holes(made, bare) == ()


def test_a_mount_of_the_whole_host_is_around_every_other() -> None:
    """Paths below / are told apart like those below any directory."""
    machine = facts(SMALL).replace(kinds={"/x": DIRECTORY, "/x/y": DIRECTORY})
    made = container(SMALL, facts(SMALL), Request())
    made = made.replace(mounts=(Mount("/x", "/", True), Mount("/x/y", "/y", False)))
    call = read(apple.run(made, machine), world(machine, made))
    assert call.values["read-only-path"] == ["/y"]


def test_the_innermost_mount_says_what_is_shown() -> None:
    """A read-only path is kept where the innermost mount around shows it, and else mounted."""
    machine = facts(SMALL)
    kinds = {"/s": DIRECTORY, "/e": DIRECTORY, "/e/f": DIRECTORY, "/s/x/f": DIRECTORY}
    machine = machine.replace(kinds={**machine.kinds, **kinds})
    made = container(SMALL, machine, Request())
    around = (Mount("/s", "/w", True), Mount("/e", "/w/x", True))
    for inner, kept in ((Mount("/e/f", "/w/x/f", False), ["/w/x/f"]), (Mount("/s/x/f", "/w/x/f", False), [])):
        there = world(machine, made)
        call = read(apple.run(made.replace(mounts=(*around, inner)), machine), there)
        assert call.values.get("read-only-path", []) == kept
        assert (seen(call, there, "/w/x/f").host, seen(call, there, "/w/x/f").write) == (inner.source, False)


def test_what_a_read_only_mount_shows_is_no_hole() -> None:
    """Another spelling of a path in a read-only mount cannot be written either."""
    machine = facts(changed("files.read", ("~/a", "~/a/b")), hidden=())
    made = container(SMALL, machine, Request())
    mounts = (Mount(f"{HOME}/a", "/root/a", False), Mount(f"{HOME}/a/b", "/root/a/b", False))
    assert apple.holes(made.replace(mounts=mounts), machine) == ()


def test_the_program_is_the_engines() -> None:
    """The command line is called by the name or path that the facts give."""
    engine = Engine(name="apple", program="/usr/local/bin/container")
    assert apple.remove(engine, "ab") == ("/usr/local/bin/container", "delete", "--force", "ab")


def test_names_of_files_given_are_expanded() -> None:
    """What is given of the home appears in the home of the sandbox."""
    plan = changed("files.read", ("~/.gitconfig",))
    _, call, there, _ = rendered(with_leaf(plan, "session.user", "me"))
    assert seen(call, there, expand("~/.gitconfig", "/home/you")).host == f"{HOME}/.gitconfig"
