"""The sandbox-exec command line and the environment that it starts with."""

from __future__ import annotations

import pytest

from coopfile.errors import CoopError
from coopfile.plan.bind import bind
from coopfile.plan.sessions import session_id
from coopfile.render import seatbelt
from tests.unit.render.seatbelt.samples import (
    FACTS,
    HOME,
    HOST,
    MOUNTED,
    PROXY,
    REPRESENTATIVE,
    TEMPORARY,
    WORKSPACE,
    compiled,
    parameters,
    permissive,
    rendered,
    sample,
)

PLAIN = 'workspace.path = "host"\n'


def test_argv() -> None:
    """The command comes after its environment, sandbox-exec by its full path, parameters and the profile."""
    argv = rendered(f'{PLAIN}files.write = ["/srv/out"]', command=("-x", "A=B", "")).argv
    assert argv == (
        "/usr/bin/env",
        "-i",
        "COOP_CREATED=1700000000",
        f"COOP_SESSION={session_id(WORKSPACE, None)}",
        f"COOP_WORKSPACE={WORKSPACE}",
        "GIT_CONFIG_GLOBAL=/dev/null",
        f"HOME={HOME}",
        "LOGNAME=dev",
        "PATH=/opt/homebrew/bin:/opt/homebrew/sbin:"
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"PWD={WORKSPACE}/lib",
        "SHELL=/bin/zsh",
        "TAR_OPTIONS=--no-same-owner",
        "TERM=xterm",
        f"TMPDIR={TEMPORARY}",
        "USER=dev",
        "/usr/bin/sandbox-exec",
        *("-D", f"WORKSPACE={WORKSPACE}"),
        *("-D", f"HOME={HOME}"),
        *("-D", "WRITE_0=/srv/out"),
        *("-D", "TEMPORARY_0=/private/tmp"),
        *("-D", f"TEMPORARY_1={TEMPORARY}"),
        *("-f", "/opt/coop/profile.sb", "--"),
        *("-x", "A=B", ""),
    )


def test_proxy() -> None:
    """In proxy mode programs are led to the port that the profile lets through; in others to none."""
    found = rendered('network.mode = "proxy"')
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy"):
        assert f"{name}=http://127.0.0.1:{PROXY}" in found.argv
    assert not any("proxy" in word.lower() for word in rendered(PLAIN).argv)
    own = rendered('network.mode = "proxy"\nenv.http_proxy = "http://127.0.0.1:1"')
    assert "http_proxy=http://127.0.0.1:1" in own.argv


TWICE = f'''
files.read = ["/tmp", "/srv/out", "~/src/app"]
files.write = ["/srv/out", "{HOME}/.config", "~/.config"]
'''


@pytest.mark.parametrize("text", [REPRESENTATIVE, permissive(), PLAIN, TWICE])
def test_every_parameter_is_used_and_defined(text: str) -> None:
    """A profile fails as a whole over one undefined parameter; and none is passed for nothing."""
    found = sample(text)
    used = {name for name in parameters(found.argv) if f'(param "{name}")' in found.text}
    assert used == set(parameters(found.argv))
    assert found.text.count("(param ") == sum(found.text.count(f'(param "{name}")') for name in used)


def test_secrets_are_not_written() -> None:
    """A value of the host's environment is named, never in argv or the profile."""
    found = sample(REPRESENTATIVE)
    assert not any("s3cret" in argument for argument in (*found.argv, found.text))
    assert "TOKEN" in found.argv[2] and "API_TOKEN" in found.argv[2]
    assert seatbelt.environment(found.plan, found.launch, found.facts)["TOKEN"] == "s3cret"


def test_the_plan_names_variables() -> None:
    """What the plan says of a variable counts before what coop sets."""
    plan = compiled(f'{PLAIN}[env]\nHOME = "/x"\nPATH = "/y"\nTMPDIR = "/z"')
    found = seatbelt.environment(plan, bind(plan, HOST, ()), FACTS)
    assert (found["HOME"], found["PATH"], found["TMPDIR"]) == ("/x", "/y", "/z")
    assert "SSH_AUTH_SOCK" not in found and "API_TOKEN" not in found


XDG = f"{HOME}/.config/git/config"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PLAIN, "/dev/null"),
        (f'{PLAIN}files.read = ["~/.gitconfig"]', f"{HOME}/.gitconfig"),
        (f'{PLAIN}files.write = ["~/.config"]', XDG),
        (REPRESENTATIVE, None),
        (permissive(PLAIN), None),
        (f'{PLAIN}env.GIT_CONFIG_GLOBAL = "/x"', "/x"),
    ],
)
def test_git_reads_what_it_may(text: str, expected: str | None) -> None:
    """Git is sent to its files in the home that the plan gives, for over others it would fail."""
    plan = compiled(text)
    found = seatbelt.environment(plan, bind(plan, HOST, ()), FACTS)
    assert found.get("GIT_CONFIG_GLOBAL") == expected


def test_directory() -> None:
    """The command starts where the caller stands, or else in the workspace."""
    plan = compiled()
    assert seatbelt.directory(bind(plan, HOST, ())) == f"{WORKSPACE}/lib"
    assert seatbelt.directory(bind(plan, HOST.replace(directory="/opt"), ())) == WORKSPACE


@pytest.mark.parametrize("path", [f"{WORKSPACE}/profile.sb", "/tmp/profile.sb", "/srv/out/p.sb"])
def test_a_profile_that_the_sandbox_could_change(path: str) -> None:
    """The profile's file lies where the sandbox cannot write."""
    plan = compiled(REPRESENTATIVE)
    with pytest.raises(CoopError, match="could be changed by the sandbox"):
        seatbelt.argv(plan, bind(plan, HOST, ()), FACTS, path)


@pytest.mark.parametrize(
    ("profile", "path"),
    [
        ("~/p.sb", f"{HOME}/p.sb"),
        ("/opt/p.sb", "/opt/p.sb"),
        ("./p.sb", f"{WORKSPACE}/p.sb"),
    ],
)
def test_a_profile_of_ones_own(profile: str, path: str) -> None:
    """A profile of one's own is used as it is, with the parameters that such profiles expect."""
    plan = compiled(f'{PLAIN}sandbox.profile = "{profile}"\nfiles.write = ["/srv/out", "~/.config"]')
    launch = bind(plan, HOST, ("make",))
    argv = seatbelt.argv(plan, launch, FACTS, "/ignored")
    assert argv[argv.index("-f") :] == ("-f", path, "--", "make")
    assert parameters(argv) == {
        "TARGET_DIR": WORKSPACE,
        "TMP_DIR": TEMPORARY,
        "HOME_DIR": HOME,
        "CACHE_DIR": f"{HOME}/Library/Caches",
        "ALLOWED_DIR_0": "/srv/out",
        "ALLOWED_DIR_1": f"{HOME}/.config",
        "ALLOWED_DIR_2": "/dev/null",
        "ALLOWED_DIR_3": "/dev/null",
        "ALLOWED_DIR_4": "/dev/null",
    }
    with pytest.raises(CoopError, match="file of your own"):
        seatbelt.profile(plan, launch, FACTS)
    assert "sandbox.profile" in {found.key for found in seatbelt.weakenings(plan, launch, FACTS)}


def test_a_profile_of_ones_own_has_all_paths() -> None:
    """More than five directories are passed, too."""
    paths = [f"/data/{number}" for number in range(7)]
    plan = compiled(f'{PLAIN}sandbox.profile = "/p.sb"\nfiles.write = {paths}')
    facts = FACTS.replace(kinds=dict.fromkeys(paths, "directory"))
    found = parameters(seatbelt.argv(plan, bind(plan, HOST, ()), facts, ""))
    assert [found[f"ALLOWED_DIR_{number}"] for number in range(7)] == paths


def test_skipped() -> None:
    """Paths and variables that the host does not have are named."""
    plan = compiled(f'{REPRESENTATIVE}GONE = {{ host = "NOT_SET" }}')
    facts = FACTS.replace(kinds=dict.fromkeys(MOUNTED[1:], "directory"))
    assert seatbelt.skipped(bind(plan, HOST, ()), facts) == (
        "env.GONE: the host has no variable NOT_SET",
        f"{HOME}/.gitconfig: not on this host",
    )
