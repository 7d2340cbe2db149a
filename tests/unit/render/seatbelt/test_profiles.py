"""What the profiles decide: the same under every reading of the order of rules, and as the plan says."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from coopfile.errors import CoopError
from coopfile.render.facts import LINK
from tests.unit.render.seatbelt.samples import (
    FACTS,
    HOME,
    OWN,
    PROXY,
    REPRESENTATIVE,
    STATE,
    TEMPORARY,
    WORKSPACE,
    Rendered,
    compiled,
    permissive,
    rendered,
    sample,
    with_network,
)

EXAMPLES = sorted((Path(__file__).resolve().parents[4] / "examples").glob("*Coopfile"))
RESTRICTIVE = rendered(REPRESENTATIVE)
PERMISSIVE = rendered(permissive())
BOTH = pytest.mark.parametrize("found", [RESTRICTIVE, PERMISSIVE], ids=["restrictive", "permissive"])

CHANGES = ("file-write-create", "file-write-data", "file-write-mode", "file-write-unlink", "file-write-xattr")
TIOCSTI = 0x80017472  # _IOW('t', 114, char)
LOOKS = ("file-read-data", "file-read-metadata", "file-read-xattr", "file-test-existence")


class Text(SingleFileSnapshotExtension):
    """A profile in a file of its own."""

    _write_mode = WriteMode.TEXT
    file_extension = "sb"


@pytest.mark.parametrize("mode", ["none", "host", "proxy"])
@pytest.mark.parametrize("profile", ["restrictive", "permissive"])
def test_snapshot(profile: str, mode: str, snapshot: SnapshotAssertion) -> None:
    """The profile of a representative plan is what it was when it was last reviewed."""
    text = f'sandbox.profile = "{profile}"\n{with_network(mode)}'
    assert sample(text).text == snapshot.use_extension(Text)


FILES = [
    # path, read, write; in both profiles
    (WORKSPACE, True, False),  # its own place is kept, what is in it can be changed
    (f"{WORKSPACE}/src/main.c", True, True),
    (f"{WORKSPACE}/scripts", True, False),
    (f"{WORKSPACE}/scripts/deploy.sh", True, False),
    (f"{WORKSPACE}/scripts/deploy.sh2", True, True),
    (f"{WORKSPACE}/.git/HEAD", True, True),
    (f"{WORKSPACE}/.git/hooks", True, False),
    (f"{WORKSPACE}/.git/hooks/pre-commit", True, False),
    (f"{WORKSPACE}/Coopfile", True, False),
    (f"{WORKSPACE}/COOPFILE.lock", True, False),
    (f"{WORKSPACE}/Coop\ufb01le.lock", True, False),
    (f"{WORKSPACE}/.GIT/Hoo\u212as/pre-commit", True, False),
    (f"{WORKSPACE}/.env", False, False),
    (f"{WORKSPACE}/.ENV.local", False, False),
    (f"{WORKSPACE}/deep/.env", False, False),
    (f"{WORKSPACE}/deep/er/.envs/key", False, False),
    (f"{WORKSPACE}/x.env", True, True),
    (f"{WORKSPACE}/secrets", False, False),
    (f"{WORKSPACE}/secrets/a", False, False),
    (f"{WORKSPACE}/deep/secrets", True, True),
    (f"{WORKSPACE}/keys/b7.pem", False, False),
    (f"{WORKSPACE}/keys/d7.pem", True, True),
    (f"{HOME}/.gitconfig", True, False),
    (f"{HOME}/.cache/go-build/x", True, True),
    (f"{HOME}/.config/app/settings", True, True),
    (f"{HOME}/.config/app/fixed/x", True, False),
    (f"{HOME}/.config/git/config", True, False),
    (f"{HOME}/.config/systemd/user/x", True, False),
    (OWN, True, False),
    ("/opt/data/x", True, False),
    ("/srv/out/x", True, True),
    (f"{STATE}/approvals", False, False),
    (STATE, False, False),
    (f"{HOME}/.docker/run/docker.sock", False, False),
    (f"{HOME}/.colima/default/docker.sock", False, False),
    (f"{HOME}/.orbstack/run/docker.sock", False, False),
    (f"{HOME}/.rd/docker.sock", False, False),
    ("/Users/Shared/.docker/x", False, False),
    ("/private/var/run/docker.sock", False, False),
    (f"{HOME}/.ssh/id_ed25519", False, False),
    (f"{HOME}/Library/Keychains/login.keychain-db", False, False),
    (f"/System/Volumes/Data{HOME}/.ssh/id_ed25519", False, False),
    ("/usr/bin/python3", True, False),
    ("/opt/homebrew/bin/git", True, False),
    ("/usr/local/bin/git", True, False),
    ("/Library/Developer/CommandLineTools/usr/bin/clang", True, False),
    ("/Library/Preferences/com.apple.dt.Xcode.plist", True, False),
    ("/private/etc/gitconfig", True, False),
    ("/private/etc/ssl/cert.pem", True, False),
    ("/System/Library/Frameworks/x", True, False),
    ("/System/Volumes/Preboot/Cryptexes/OS/System/Library/dyld/x", True, False),
    ("/private/etc/hosts", True, False),
    ("/private/tmp/x", True, True),
    ("/private/tmp/shared/x", True, False),
    (f"{TEMPORARY}/x", True, True),
    ("/dev/null", True, True),
    ("/dev/tty", True, True),
    ("/dev/urandom", True, False),
    ("/dev/ttys003", False, False),
]


@BOTH
@pytest.mark.parametrize(("path", "read", "write"), FILES)
def test_files(found: Rendered, path: str, read: bool, write: bool) -> None:
    """A file is read and written where the plan gives it, and nowhere else."""
    assert found.may("file-read-data", path) is read
    made = [found.may(operation, path) for operation in ("file-write-create", "file-write-unlink")]
    assert made == [write, write]
    pinned = path in (WORKSPACE, f"{WORKSPACE}/scripts")
    assert found.may("file-write-data", path) is (write or pinned)


OUTSIDE = [
    f"{HOME}/notes.txt",
    f"{HOME}/.bashrc",
    f"{HOME}/src/other/main.c",
    f"{WORKSPACE}-other/main.c",
    "/Users/other/x",
    "/private/etc/master.passwd",
    "/private/etc/sudoers",
    "/private/etc/ssl/private/key.pem",
    "/opt/homebrew/var/postgres/x",
    "/usr/local/var/mysql/x",
    "/Library/Preferences/x.plist",
    "/private/var/db/x",
    "/Volumes/Disk/x",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_what_is_not_given(path: str) -> None:
    """What the plan does not give is not read under restrictive, and not written under either."""
    assert not any(RESTRICTIVE.may(operation, path) for operation in (*LOOKS, *CHANGES, "process-exec"))
    assert not any(PERMISSIVE.may(operation, path) for operation in CHANGES)
    assert PERMISSIVE.may("file-read-data", path)


@BOTH
@pytest.mark.parametrize(
    "path", [f"{WORKSPACE}/.env", f"{WORKSPACE}/secrets/a", STATE, "/private/var/run/docker.sock"]
)
def test_unseen(found: Rendered, path: str) -> None:
    """What is hidden cannot even be looked at, run, listed, or connected to, as a file or a directory."""
    for vnode in ("REGULAR-FILE", "DIRECTORY"):
        for operation in (*LOOKS, *CHANGES, "process-exec", "file-map-executable"):
            assert not found.may(operation, path, vnode=vnode), operation
    assert not found.may("network-outbound", path) and not found.may("network-bind", path)


@BOTH
def test_directories_show_only_that_they_are_there(found: Rendered) -> None:
    """A path can be followed through directories that the plan does not give."""
    assert found.may("file-read-metadata", HOME, vnode="DIRECTORY")
    assert RESTRICTIVE.may("file-read-data", HOME, vnode="DIRECTORY") is False
    assert RESTRICTIVE.may("file-read-metadata", f"{HOME}/notes.txt") is False


@BOTH
@pytest.mark.parametrize(
    "path",
    [
        WORKSPACE,
        f"{WORKSPACE}/.git",
        f"{WORKSPACE}/.GIT",
        f"{WORKSPACE}/.claude",
        f"{WORKSPACE}/deep",
        f"{WORKSPACE}/keys",
        f"{HOME}/.config",
        f"{HOME}/.config/coop",
        "/srv/out",
        "/private/tmp",
    ],
)
def test_nothing_guarded_is_moved_with_what_holds_it(found: Rendered, path: str) -> None:
    """What holds a guarded path is neither moved away nor made anew, as a link for example."""
    assert not found.may("file-write-unlink", path, vnode="DIRECTORY")
    assert not found.may("file-write-create", path, vnode="DIRECTORY")
    assert found.may("file-read-data", path, vnode="DIRECTORY")


@BOTH
def test_no_second_names(found: Rendered) -> None:
    """Hard links and clones, which no rule about paths could follow, are not made."""
    for operation in ("file-link", "file-clone"):
        assert not found.may(operation, f"{WORKSPACE}/.git/config")
        assert not found.may(operation, f"{WORKSPACE}/new")


def test_temporary_directories_by_their_real_paths() -> None:
    """/tmp and /var are links, and the kernel asks about what they lead to."""
    assert {"/private/tmp", TEMPORARY} <= set(RESTRICTIVE.profile.strings)
    assert not RESTRICTIVE.may("file-write-data", "/tmp/x")


def test_running_programs() -> None:
    """Programs are run from where files are read: the host's tools and what the plan gives."""
    assert RESTRICTIVE.may("process-exec", "/usr/bin/make")
    assert RESTRICTIVE.may("process-exec", "/opt/homebrew/bin/git")
    assert RESTRICTIVE.may("process-exec", f"{WORKSPACE}/run.sh")
    assert RESTRICTIVE.may("file-map-executable", f"{WORKSPACE}/module.so")
    assert not RESTRICTIVE.may("process-exec", f"{HOME}/bin/tool")
    assert PERMISSIVE.may("process-exec", f"{HOME}/bin/tool")


@BOTH
def test_terminals(found: Rendered) -> None:
    """The inherited terminal is set up; only terminals of the sandbox's own are opened."""
    assert found.may("pseudo-tty") and found.may("file-ioctl", "/dev/ttys003")
    own = ("com.apple.sandbox.pty",)
    for operation in ("file-read-data", "file-write-data"):
        assert found.may(operation, "/dev/ttys003", extensions=own)
        assert not found.may(operation, "/dev/ttys003")
        for disk in ("/dev/disk0", "/dev/rdisk0s1"):
            assert not found.may(operation, disk)
    assert found.may("file-read-metadata", "/dev/ttys003")
    for device in ("/dev/ttys003", "/dev/tty", "/dev/null", "/dev/ptmx"):
        assert not found.may("file-ioctl", device, command=TIOCSTI)


@BOTH
def test_processes_and_services(found: Rendered) -> None:
    """Only the sandbox's own processes are asked and signalled; services with keys are not reached."""
    assert found.may("process-fork")
    for operation in ("signal", "process-info-pidinfo"):
        assert found.may(operation, target="same-sandbox") and not found.may(operation)
    assert found.may("mach-lookup", name="com.apple.system.logger")
    for name in (
        "SecurityServer",
        "securityd.xpc",
        "trustd.agent",
        "coreservices.appleevents",
        "pasteboard.1",
    ):
        assert not found.may("mach-lookup", name=f"com.apple.{name}")
    assert found.may("sysctl-read", name="hw.ncpu") and not found.may("sysctl-read", name="kern.procargs2")
    assert not found.may("sysctl-write", name="kern.hostname")


@pytest.mark.parametrize("wrap", [str, permissive], ids=["restrictive", "permissive"])
@pytest.mark.parametrize(
    ("mode", "internet", "loopback", "proxy", "listen"),
    [
        ("none", False, False, False, False),
        ("proxy", False, False, True, False),
        ("host", True, True, True, True),
    ],
)
def test_network(
    wrap: type[str], mode: str, internet: bool, loopback: bool, proxy: bool, listen: bool
) -> None:
    """Each mode reaches what it says, and no more of this machine's loopback than the proxy."""
    found = rendered(with_network(mode, wrap(REPRESENTATIVE)))
    for host in ("93.184.216.34", "192.168.1.1", "169.254.169.254", "2606:2800:220:1::1"):
        assert found.may_connect(host, 443) is internet
        assert found.may_connect(host, PROXY) is internet
    for host in ("127.0.0.1", "::1"):
        assert found.may_connect(host, PROXY) is proxy
        assert found.may_connect(host, PROXY, udp=True) is loopback
        assert found.may_connect(host, 5432) is loopback
    for operation in ("network-bind", "network-inbound"):
        assert found.may(operation, host="0.0.0.0", port=3000) is listen
    for name in ("mDNSResponder", "trustd.agent"):
        assert found.may("mach-lookup", name=f"com.apple.{name}") is internet
    assert found.may("network-outbound", "/private/var/run/mDNSResponder") is internet
    assert not found.may("mach-lookup", name="com.apple.SecurityServer")


@pytest.mark.parametrize("mode", ["none", "proxy", "host"])
def test_sockets_of_the_host(mode: str) -> None:
    """UNIX sockets are used where the plan lets write, and nobody else's are reached."""
    found = sample(with_network(mode))
    assert found.may("system-socket", domain="AF_UNIX")
    for operation in ("network-bind", "network-outbound"):
        # ~/.config has something read-only in it.
        assert not found.may(operation, f"{HOME}/.config/app/fixed/x.sock")
        assert found.may(operation, f"{WORKSPACE}/x.sock") and found.may(operation, "/srv/out/x.sock")
        for path in (
            "/private/tmp/com.apple.launchd.x/Listeners",
            f"{TEMPORARY}/agent.sock",
            f"{HOME}/.gitconfig",
            f"{HOME}/.docker/run/docker.sock",
            "/private/var/run/docker.sock",
            f"{WORKSPACE}/.env",
        ):
            assert not found.may(operation, path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples(path: Path) -> None:
    """Every example has a profile that means one thing, or says why it has none."""
    plan = compiled(path.read_text(encoding="utf-8"))
    mounted = [item.replace("~", HOME, 1) for item in (*plan.files.read, *plan.files.write)]
    try:
        found = rendered(
            plan, FACTS.replace(kinds=dict.fromkeys(mounted, "directory"), hidden=(), proxy=None)
        )
    except CoopError as error:
        root = plan.base.image or any(getattr(plan.packages, name) for name in plan.packages._fields)
        other = plan.network.mode in ("veth", "proxy") or plan.sandbox.min_isolation != "namespace"
        assert (root or other) and error.remedy
        return
    assert found.may("file-write-data", f"{WORKSPACE}/x") and not found.may(
        "file-read-data", f"{HOME}/.ssh/x"
    )


def test_more_than_five_paths() -> None:
    """Any number of paths can be given."""
    paths = [f"/data/{number}" for number in range(40)]
    facts = FACTS.replace(kinds=dict.fromkeys(paths, "directory"))
    found = rendered(f"files.write = {paths[:20]}\nfiles.read = {paths[20:]}", facts)
    assert all(found.may("file-write-data", f"{path}/x") for path in paths[:20])
    assert all(found.may("file-read-data", f"{path}/x") for path in paths)
    assert not any(found.may("file-write-data", f"{path}/x") for path in paths[20:])


def test_links_of_the_plan() -> None:
    """A path of the plan that is a link gives what it leads to."""
    facts = FACTS.replace(
        kinds={"/Volumes/big/cache": "directory"}, real={f"{HOME}/.cache": "/Volumes/big/cache"}
    )
    found = rendered('files.write = ["~/.cache"]', facts)
    assert found.may("file-write-data", "/Volumes/big/cache/x")
    assert not found.may("file-write-data", f"{HOME}/.cache/x")
    # The kernel asks for this of a link that it follows.
    assert found.may("file-read-metadata", f"{HOME}/.cache")
    assert not found.may("file-read-data", f"{HOME}/.cache")
    assert not found.may("file-read-metadata", f"{HOME}/.netrc")


@pytest.mark.parametrize("path", [f"{WORKSPACE}/link", "/tmp/link/x", f"{HOME}/.cache/link"])
def test_links_that_the_sandbox_could_have_made(path: str) -> None:
    """A path behind a link in a writable place is refused, wherever it leads now."""
    facts = FACTS.replace(
        kinds={f"{HOME}/.ssh": "directory", f"{HOME}/.cache": "directory"},
        real={path.replace("/tmp", "/private/tmp"): f"{HOME}/.ssh"},
    )
    with pytest.raises(CoopError, match="behind a symbolic link"):
        rendered(f'files.read = ["{path}"]\nfiles.write = ["~/.cache"]', facts)


def test_read_only_paths_by_their_real_names() -> None:
    """A read-only path inside of a writable one stays read-only when both are behind a link."""
    facts = FACTS.replace(kinds={"/private/var/data": "directory", "/private/var/data/fixed": "directory"})
    found = rendered('files.write = ["/var/data"]\nfiles.read = ["/var/data/fixed"]', facts)
    assert found.may("file-write-data", "/private/var/data/x")
    assert not found.may("file-write-data", "/private/var/data/fixed/x")


def test_a_read_only_path_in_the_workspace() -> None:
    """What files.read names inside the project stays read-only, wherever the plan puts the project."""
    path = f"{WORKSPACE}/infra"
    facts = FACTS.replace(kinds={path: "directory"})
    for place in ("host", "/workspace"):
        found = rendered(f'workspace.path = "{place}"\nfiles.read = ["{path}"]', facts)
        assert found.may("file-read-data", f"{path}/x") and found.may("file-write-create", f"{WORKSPACE}/x")
        assert not found.may("file-write-create", f"{path}/x")


def test_a_read_only_workspace() -> None:
    """Reading wins for the workspace, too, and then there is nowhere to make a socket."""
    facts = FACTS.replace(kinds={WORKSPACE: "directory"})
    found = rendered(f'workspace.path = "host"\nfiles.read = ["{WORKSPACE}"]', facts)
    assert found.may("file-read-data", f"{WORKSPACE}/x")
    assert not found.may("file-write-data", f"{WORKSPACE}/x")
    assert not found.may("network-bind", f"{WORKSPACE}/x.sock")


@pytest.mark.parametrize("kind", ["hidden", "inputs", "private"])
@pytest.mark.parametrize("prefix", ["/tmp", "/var/tmp", "/System/Volumes/Data/private/tmp"])
def test_guards_by_their_real_names(kind: str, prefix: str) -> None:
    """A guarded path is guarded by the kernel's name for it, whichever the facts have."""
    host = FACTS.host.replace(workspace=f"{prefix}/app", directory=f"{prefix}/app")
    facts = FACTS.replace(host=host, **{kind: (f"{prefix}/app/guarded",)})
    found = rendered(permissive('files.hide = ["**/*.key"]'), facts)
    real = prefix.replace("/System/Volumes/Data", "").replace("/private", "")
    workspace = f"/private{real}/app"
    assert found.may("file-write-data", f"{workspace}/x")
    assert not found.may("file-write-data", f"{workspace}/guarded")
    assert found.may("file-read-data", f"{workspace}/guarded") is (kind == "inputs")
    assert not found.may("file-read-data", f"{workspace}/a.key")
    assert not found.may("file-write-create", f"{workspace}/.git/hooks/x")


def test_a_home_behind_a_link() -> None:
    """Root's home is below /var, which is a link: its keys are hidden by their real names."""
    facts = FACTS.replace(host=FACTS.host.replace(home="/var/root"), private=("/var/root/state",))
    found = rendered(permissive(""), facts)
    for name in (".ssh/id_rsa", ".docker/run/docker.sock", "state/x"):
        assert not found.may("file-read-data", f"/private/var/root/{name}")


def test_what_is_not_there_is_not_given() -> None:
    """A path that the host does not have cannot be made by the sandbox."""
    found = rendered('files.write = ["~/.cache/go-build"]', FACTS.replace(kinds={}))
    assert not found.may("file-write-create", f"{HOME}/.cache/go-build")


def test_a_path_that_is_named_inside_of_a_protected_one() -> None:
    """What a Coopfile names itself below the home, it may have, and nothing beside it."""
    paths = (f"{HOME}/.config", f"{HOME}/.config/systemd/user")
    text = 'files.write = ["~/.config", "~/.config/systemd/user"]'
    found = rendered(text, FACTS.replace(kinds=dict.fromkeys(paths, "directory")))
    assert found.may("file-write-create", f"{HOME}/.config/systemd/user/x.service")
    assert not found.may("file-write-create", f"{HOME}/.config/systemd/x.conf")


def test_secrets_that_the_plan_names() -> None:
    """Where a plan reads everything but keys, it may still name a key."""
    facts = FACTS.replace(kinds={f"{HOME}/.ssh/config": "file"})
    found = rendered(permissive('files.read = ["~/.ssh/config"]'), facts)
    assert found.may("file-read-data", f"{HOME}/.ssh/config")
    assert not found.may("file-read-data", f"{HOME}/.ssh/id_ed25519")


def test_violations_name_the_plan() -> None:
    """Every denial is reported with a tag that is the plan's, and no other plan's."""
    tags = set(RESTRICTIVE.profile.messages) - {None}
    assert len(tags) == 1 and tags != set(PERMISSIVE.profile.messages) - {None}
    for form, message in zip(RESTRICTIVE.profile.forms[1:], RESTRICTIVE.profile.messages, strict=True):
        assert isinstance(form, list) and (message is not None) is (form[0] == "deny")


@BOTH
def test_order(found: Rendered) -> None:
    """All that is allowed comes before all that is denied."""
    allows = [rule.allow for rule in found.profile.rules]
    assert allows == sorted(allows, reverse=True)


@pytest.mark.parametrize("path", [f"{WORKSPACE}/.git", f"{HOME}/.config/git"])
def test_links_on_the_way_to_a_protected_path(path: str) -> None:
    """A link that the sandbox could point elsewhere is refused."""
    facts = FACTS.replace(kinds={**FACTS.kinds, path: LINK})
    with pytest.raises(CoopError, match="symbolic link"):
        rendered(REPRESENTATIVE, facts)
