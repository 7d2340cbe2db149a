"""Why an action is allowed or denied, by which rule, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from coopfile.errors import UsageError
from coopfile.language.items import HostPattern, ImageReference, Variable
from coopfile.language.reading import read
from coopfile.language.sources import Source
from coopfile.plan.bind import bind
from coopfile.plan.explain import COOP_SETS, Action, Verdict, explain
from coopfile.plan.launch import Host
from coopfile.plan.model import Plan, with_leaf
from coopfile.plan.resolve import resolve
from tests.unit.plan.samples import ACCESS, PLAN

HOME = "/home/alice"
WORKSPACE = "/home/alice/work/app"

BASE = with_leaf(PLAN, "base.image", None)


def plan(**leaves: Any) -> Plan:
    """Return the sample plan on the host's tools, with other values at some keys (``_`` for the dot)."""
    found = BASE
    for key, value in leaves.items():
        found = with_leaf(found, key.replace("_", ".", 1), value)
    return found


def ask(found: Plan, verb: str, target: str) -> Verdict:
    """Explain an action of Alice's in her workspace."""
    return explain(found, Action(verb, target), home=HOME, workspace=WORKSPACE)


PATHS = [
    # verb, path, allowed, rule
    ("read", f"{WORKSPACE}/src/main.py", True, "workspace.path"),
    ("write", f"{WORKSPACE}/src/main.py", True, "workspace.path"),
    ("read", WORKSPACE, True, "workspace.path"),
    ("read", "src/main.py", True, "workspace.path"),
    ("read", "../other/main.py", False, "files.read"),
    ("read", f"{WORKSPACE}-other/main.py", False, "files.read"),
    ("read", f"{WORKSPACE}/.git/hooks/pre-commit", True, "workspace.protect"),
    ("write", f"{WORKSPACE}/.git/hooks/pre-commit", False, "workspace.protect"),
    ("write", f"{WORKSPACE}/.git/hooks", False, "workspace.protect"),
    ("write", f"{WORKSPACE}/.git/hooks-mine", True, "workspace.path"),
    ("write", f"{WORKSPACE}/Coopfile", False, "workspace.protect"),
    ("read", f"{WORKSPACE}/.env", False, "files.hide"),
    ("write", f"{WORKSPACE}/.env", False, "files.hide"),
    ("read", f"{WORKSPACE}/deep/down/.env.local", False, "files.hide"),
    ("read", f"{WORKSPACE}/.envs/production/key", False, "files.hide"),
    ("read", f"{WORKSPACE}/src/x.env", True, "workspace.path"),
    ("read", "~/.gitconfig", True, "files.read"),
    ("read", f"{HOME}/.gitconfig", True, "files.read"),
    ("write", "~/.gitconfig", False, "files.read"),
    ("read", "~/.cache/go/build/x", True, "files.write"),
    ("write", "~/.cache/go/build/x", True, "files.write"),
    ("write", "~/.cache/go", True, "files.write"),
    ("write", "~/.cache/golang", False, "files.write"),
    ("read", "~/.ssh/id_rsa", False, "files.read"),
    ("read", "~", False, "files.read"),
    ("write", "~/notes", False, "files.write"),
    ("read", "/home/bob/.ssh/id_rsa", False, "files.read"),
    ("read", "/usr/bin/python3", True, "built in"),
    ("write", "/usr/bin/python3", False, "built in"),
    ("read", "/lib64/ld-linux-x86-64.so.2", True, "built in"),
    ("read", "/library/x", False, "files.read"),
    ("read", "/etc/ssl/certs/ca-certificates.crt", True, "built in"),
    ("write", "/etc/ssl/certs/ca-certificates.crt", False, "built in"),
    ("read", "/etc/passwd", True, "built in"),
    ("read", "/etc/shadow", False, "files.read"),
    ("read", "/etc/resolv.conf", False, "files.read"),
    ("read", "/proc/self/status", True, "built in"),
    ("read", "/proc/kcore", False, "built in"),
    ("write", "/proc/sys/kernel/core_pattern", False, "built in"),
    ("read", "/sys/class", False, "files.read"),
    ("write", "/dev/null", True, "built in"),
    ("read", "/dev/sda", False, "files.read"),
    ("write", "/tmp/x", True, "built in"),
    ("read", "/tmp/x", False, "built in"),
    ("read", "/tmp", True, "built in"),
    ("write", "/dev/shm/x", True, "built in"),
    ("write", "/var/tmp/x", True, "built in"),
    ("write", "/var/lib/x", False, "files.write"),
    ("read", "/run/docker.sock", False, "built in"),
    ("read", "/", False, "files.read"),
    ("read", "//etc//shadow/", False, "files.read"),
    ("read", "/usr/../etc/shadow", False, "files.read"),
    ("exec", "python3", True, "built in"),
    ("exec", "/usr/bin/python3", True, "built in"),
    ("exec", "./run.sh", True, "workspace.path"),
    ("exec", "~/bin/tool", False, "files.read"),
    ("exec", ".env/bin/python", False, "files.hide"),
]


@pytest.mark.parametrize(("verb", "path", "allowed", "key"), PATHS)
def test_paths(verb: str, path: str, allowed: bool, key: str) -> None:
    """A path of the host is allowed or denied by the rule that decides about it."""
    verdict = ask(BASE, verb, path)
    assert (verdict.allowed, verdict.key) == (allowed, key), verdict
    assert (verdict.remedy is None) or not allowed


def test_what_is_not_given_says_how_to_give_it() -> None:
    """The remedy is the line to write, in the Coopfile's own spelling of the path."""
    assert ask(BASE, "read", f"{HOME}/.ssh/config").remedy == 'add "~/.ssh/config" to files.read'
    assert ask(BASE, "write", "/opt/data").remedy == 'add "/opt/data" to files.write'
    assert ask(BASE, "write", "~/.gitconfig").remedy == 'move "~/.gitconfig" to files.write'
    assert ask(BASE, "read", ".env").remedy == 'take "**/.env*" out of files.hide'


def test_the_innermost_path_decides() -> None:
    """A read-only path inside a writable one is read-only, and the other way round."""
    found = plan(files_write=("~/a", "~/a/b/c"), files_read=("~/a/b",))
    assert [ask(found, "write", f"~/a/{path}").allowed for path in ("x", "b/x", "b/c/x")] == [
        True,
        False,
        True,
    ]
    assert all(ask(found, "read", f"~/a/{path}").allowed for path in ("x", "b/x", "b/c/x"))


def test_reading_wins_for_a_path_in_both_lists() -> None:
    """What one layer gives to read only, another does not make writable under the same name."""
    found = plan(files_write=("~/a",), files_read=("~/a",))
    assert ask(found, "read", "~/a/x").allowed
    assert not ask(found, "write", "~/a/x").allowed


def test_what_the_host_runs_is_protected_inside_of_what_is_given() -> None:
    """A writable directory of the home does not give the start-up files in it, unless they are named."""
    found = plan(files_write=("~/.config",))
    assert ask(found, "write", "~/.config/app/settings").allowed
    verdict = ask(found, "write", "~/.config/systemd/user/x.service")
    assert (verdict.allowed, verdict.key) == (False, "built in")
    assert ask(plan(files_write=("~/.config/systemd/user",)), "write", "~/.config/systemd/user/x").allowed
    named = plan(files_write=("~/.bashrc",))
    assert ask(named, "write", "~/.bashrc").allowed


def test_naming_a_protected_or_hidden_path_of_the_workspace_does_not_give_it() -> None:
    """What is hidden or protected in the workspace stays so, whichever way a plan names it."""
    found = plan(files_write=("~/work/app/.git/hooks",), files_read=("~/work/app/.env",))
    assert not ask(found, "write", ".git/hooks/pre-commit").allowed
    assert not ask(found, "read", ".env").allowed


def test_what_is_given_read_only_stays_so_in_the_workspace() -> None:
    """A path of files.read below the workspace is read-only through the workspace too."""
    found = plan(files_read=(f"{WORKSPACE}/infra",))
    verdict = ask(found, "write", "infra/main.tf")
    assert (verdict.allowed, verdict.key) == (False, "files.read")
    assert ask(found, "read", "infra/main.tf").allowed
    assert ask(found, "write", "infrastructure").allowed


def test_an_image_takes_the_place_of_the_host_tools() -> None:
    """With a base image neither the host's tools nor its configuration are visible."""
    found = plan(base_image=ImageReference("docker.io", "library/debian", "bookworm"))
    for path in ("/usr/bin/python3", "/etc/ssl", "/etc/shadow"):
        verdict = ask(found, "read", path)
        assert (verdict.allowed, verdict.key) == (False, "base.image")
    assert ask(found, "exec", "python3").allowed
    assert ask(found, "read", "src").allowed


NETWORK = [
    # mode, host, allowed, rule
    ("none", "pypi.org:443", False, "network.mode"),
    ("none", "1.1.1.1:53", False, "network.mode"),
    ("none", "localhost:8080", True, "network.mode"),
    ("none", "127.0.0.1:8080", True, "network.mode"),
    ("none", "[::1]:8080", True, "network.mode"),
    ("none", "127.9.9.9:1", True, "network.mode"),
    ("host", "pypi.org", True, "network.mode"),
    ("host", "169.254.169.254:80", True, "network.mode"),
    ("veth", "pypi.org:443", True, "network.mode"),
    ("veth", "1.1.1.1:53", True, "network.mode"),
    ("veth", "[2606:4700::1111]:53", True, "network.mode"),
    ("veth", "169.254.169.254:80", False, "network.mode"),
    ("veth", "192.168.1.1:80", False, "network.mode"),
    ("veth", "10.0.0.1:80", False, "network.mode"),
    ("veth", "172.31.255.255:80", False, "network.mode"),
    ("veth", "172.32.0.1:80", True, "network.mode"),
    ("veth", "100.64.0.1:80", False, "network.mode"),
    ("veth", "[fd00::1]:80", False, "network.mode"),
    ("veth", "[fe80::1]:80", False, "network.mode"),
    ("veth", "0.0.0.0:80", False, "network.mode"),
    ("veth", "255.255.255.255:80", False, "network.mode"),
    ("proxy", "pypi.org", True, "network.allow"),
    ("proxy", "PyPI.org.:443", True, "network.allow"),
    ("proxy", "pypi.org:80", True, "network.allow"),
    ("proxy", "pypi.org:22", False, "network.allow"),
    ("proxy", "files.pypi.org", False, "network.allow"),
    ("proxy", "notpypi.org", False, "network.allow"),
    ("proxy", "github.com", False, "network.allow"),
    ("proxy", "api.github.com", True, "network.allow"),
    ("proxy", "api.github.com:22", False, "network.allow"),
    ("proxy", "169.254.169.254:80", False, "network.allow"),
    ("proxy", "localhost:80", True, "network.mode"),
]


@pytest.mark.parametrize(("mode", "target", "allowed", "key"), NETWORK)
def test_connect(mode: str, target: str, allowed: bool, key: str) -> None:
    """A connection is allowed or denied by the network's mode, and in proxy mode by the list."""
    patterns = (HostPattern("github.com", subdomains=True), HostPattern("pypi.org"))
    verdict = ask(plan(network_mode=mode, network_allow=patterns), "connect", target)
    assert (verdict.allowed, verdict.key) == (allowed, key), verdict


def test_connect_says_what_to_write() -> None:
    """The remedy names the mode and the host, with its port when that is an unusual one."""
    assert ask(BASE, "connect", "pypi.org").remedy == (
        'set network.mode = "proxy" and network.allow = ["pypi.org"]'
    )
    found = plan(network_mode="proxy", network_allow=())
    assert ask(found, "connect", "pypi.org:22").remedy == 'add "pypi.org:22" to network.allow'
    assert ask(found, "connect", "pypi.org:22").reason == "the proxy leads to nothing only"


ENV = [
    ("EDITOR", True, "env", "it has the text given"),
    ("TOKEN", True, "env", "it has the host's API_TOKEN, where there is one"),
    ("API_TOKEN", False, "env", "the host's variables stay outside unless [env] names them"),
    ("SSH_AUTH_SOCK", False, "env", "the host's variables stay outside unless [env] names them"),
    ("HOME", True, "built in", "coop sets it; the host's value stays outside"),
    ("LC_ALL", True, "built in", "it says how to write to people, and passes from the host"),
    ("TERM", True, "built in", "it says how to write to people, and passes from the host"),
]


@pytest.mark.parametrize(("name", "allowed", "key", "reason"), ENV)
def test_env(name: str, allowed: bool, key: str, reason: str) -> None:
    """A variable is there when coop sets it, when it concerns the terminal, or when [env] names it."""
    verdict = ask(BASE, "env", name)
    assert (verdict.allowed, verdict.key, verdict.reason) == (allowed, key, reason)
    assert verdict.remedy == (None if allowed else f'set env.{name} = {{ host = "{name}" }}')


def test_literal_values_are_not_shown() -> None:
    """The reason does not repeat a value that somebody may have taken for a secret."""
    verdict = ask(plan(env=(Variable("TOKEN", "hunter2"),)), "env", "TOKEN")
    assert "hunter2" not in repr(verdict)


def test_variables_that_coop_sets_are_those_of_a_launch() -> None:
    """The list of variables that coop sets is what binding a plan really sets."""
    host = Host(1000, 1000, "alice", HOME, WORKSPACE, WORKSPACE, {})
    launch = bind(plan(env=()), host, ("true",))
    assert sorted(launch.environment) == sorted(COOP_SETS)


@pytest.mark.parametrize(
    ("trust", "tools", "allowed"),
    [("inner", ("bash", "read_file"), True), ("familiar", ("read_file",), False), ("public", (), False)],
)
def test_trust_decides_about_commands(trust: str, tools: tuple[str, ...], allowed: bool) -> None:
    """Whoever has no shell may not run any program, whatever the files allow."""
    found = BASE.replace(access=ACCESS.replace(trust=trust, tools=tools))
    assert ask(found, "exec", "python3").allowed is allowed
    assert ask(found, "exec", "./run.sh").allowed is allowed


NONSENSE = [
    ("open", "/x", "no such action"),
    ("read", "", "cannot have ''"),
    ("read", "a\0b", r"cannot have 'a\\x00b'"),
    ("env", "A=B", "not the name of a variable"),
    ("connect", "127.1:80", "programs disagree"),
    ("connect", "0x7f000001", "programs disagree"),
    ("connect", "[::ffff:127.0.0.1]:80", "in disguise"),
    ("connect", "https://pypi.org", "address of the web"),
    ("connect", "pypi.org:70000", "does not exist"),
    ("connect", "*.pypi.org", "is many hosts"),
    ("connect", ":443", "is not a host"),
]


@pytest.mark.parametrize(("verb", "target", "message"), NONSENSE)
def test_nonsense_is_refused(verb: str, target: str, message: str) -> None:
    """A question that makes no sense is wrong usage, not a verdict."""
    with pytest.raises(UsageError, match=message):
        ask(BASE, verb, target)


def test_the_line_that_decides() -> None:
    """With the settings at hand, a verdict names the line of the very item that decides."""
    text = b"""[files]
read = [
  "~/.gitconfig",
  "~/.config/app",
]
hide = ["**/.env*"]
[env]
KEY = { host = "KEY" }
[network]
mode = "proxy"
allow = ["pypi.org",
         "*.github.com"]
"""
    settings = read([Source("project", "Coopfile", text)]).settings()
    found = resolve(settings)

    def origin(verb: str, target: str) -> str | None:
        action = Action(verb, target)
        return explain(found, action, home=HOME, workspace=WORKSPACE, settings=settings).origin

    assert origin("read", "~/.config/app/x") == "Coopfile:4"
    assert origin("read", "~/.gitconfig") == "Coopfile:3"
    assert origin("read", ".env") == "Coopfile:6"
    assert origin("env", "KEY") == "Coopfile:8"
    assert origin("connect", "localhost") == "Coopfile:10"
    assert origin("connect", "api.github.com") == "Coopfile:12"
    assert origin("write", "Coopfile") == origin("write", "src") == "built in"
    assert origin("read", "~/.ssh/id_rsa") is None


@pytest.mark.parametrize(
    ("target", "allowed", "key"),
    [(".git/hooks/x", False, "workspace.protect"), ("src/x", True, "workspace.path")],
)
def test_the_workspace_decides_before_the_private_tmp(target: str, allowed: bool, key: str) -> None:
    """A project below /tmp is asked about as a project: the sandbox's own /tmp says nothing of it."""
    verdict = explain(BASE, Action("write", target), home=HOME, workspace="/tmp/project")
    assert (verdict.allowed, verdict.key) == (allowed, key)
