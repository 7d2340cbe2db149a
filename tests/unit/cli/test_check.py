"""``coop check`` says everything that is wrong, and what is probably not meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coopfile.cli import surroundings
from coopfile.cli.main import main


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the machine out of it, which tests/native/test_check.py looks at."""
    monkeypatch.setattr(surroundings, "look_around", lambda compiled, position: ())


def check(project: Path, capsys: pytest.CaptureFixture[str], text: str, *argv: str) -> tuple[int, str]:
    """Check a text, and return the status and what was printed."""
    (project / "Coopfile").write_text(text)
    status = main(["check", *argv])
    return status, capsys.readouterr().out


def test_clean(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file without fault gives 0 and says so; -q keeps quiet."""
    assert check(project, capsys, "coop = 1\n") == (0, "no problems found\n")
    assert check(project, capsys, "coop = 1\n", "-q") == (0, "")


def test_all_errors_at_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every mistake is printed with its line, and the status is 1."""
    status, out = check(project, capsys, 'netwrok.mode = "none"\nlimits.pids = -1\nlimits.memory = "x"\n')
    assert status == 1
    for place in ("Coopfile:1:", "Coopfile:2:", "Coopfile:3:", "3 errors"):
        assert place in out


def test_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json carries each diagnostic's code and place."""
    status, out = check(project, capsys, "limits.pids = -1\n", "--json")
    report = json.loads(out)
    assert (status, report["ok"]) == (1, False)
    (found,) = report["diagnostics"]
    assert (found["severity"], found["source"], found["line"]) == ("error", "Coopfile", 1)


def test_every_layer_is_checked(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mistakes of the local file and of --set show as well."""
    (project / "Coopfile.local").write_text("limits.cpus = 0\n")
    status, out = check(project, capsys, "coop = 1\n", "--set", "limits.pids=x")
    assert status == 1
    assert "Coopfile.local:1:" in out
    assert "limits.pids" in out


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('network.allow = ["pypi.org"]', 1, "network.allow has no effect"),
        ('network.mode = "proxy"', 1, "nothing can be reached"),
        ('network = { mode = "host", publish = ["3000"] }', 1, "network.publish has no effect"),
        ('coop = 1\nfiles.read = ["/run/user/1000"]', 2, "can hold sockets"),
        ('files.write = ["/tmp"]', 1, "can hold sockets"),
        ('files.read = ["/var"]', 1, "can hold sockets"),
        ('packages.apt = ["git"]', 1, "packages.apt has no effect without base.image"),
        ('setup.run = ["true"]', 1, "setup.run has no effect without base.image"),
        ('env.API_TOKEN = "abc"', 1, "looks like a secret"),
        ("sandbox.enabled = false", 1, "tool calls run on this machine itself"),
        ('sandbox.fallback = "host"', 1, "commands run unsandboxed"),
        ('[sandbox]\nbackend = "native"\nruntime = "runsc"', 3, "sandbox.runtime has no effect"),
        ('[sandbox]\nbackend = "native"\nprofile = "permissive"', 3, "sandbox.profile has no effect"),
    ],
)
def test_warnings(text: str, line: int, says: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is allowed but hardly meant is a warning at its line, and the status stays 0."""
    status, out = check(project, capsys, text + "\n")
    assert status == 0
    assert f"Coopfile:{line}:" in out
    assert says in out
    assert "1 warning\n" in out


USER = '[[users]]\nname = "{0}"\ntrust = "{1}"\nmatch = ["irc:{0}"]\n'


def test_owners(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Several owners are a warning, and so are users without an owner; one owner is right."""
    alice, bob = USER.format("alice", "owner"), USER.format("bob", "owner")
    assert check(project, capsys, alice) == (0, "no problems found\n")
    assert "several owners: alice, bob" in check(project, capsys, alice + bob)[1]
    assert "none of them is the owner" in check(project, capsys, USER.format("bob", "full"))[1]


OVERRIDES = """
[[users]]
name = "{0}"
match = ["irc:{0}"]
override = {{ {1} }}
"""


def test_overrides_and_the_ceiling(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An override that asks for more than the ceiling is an error at its line, whoever asks."""
    place = project.parent / "settings/coop/Coopfile"
    place.parent.mkdir(parents=True)
    place.write_text('[ceiling]\nlimits.memory = "3g"\nnetwork.mode = "none"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(project.parent / "settings"))
    more = OVERRIDES.format("bob", 'limits.memory = "4g", network.mode = "host"')
    less = OVERRIDES.format("eve", 'limits.memory = "1g"')
    status, out = check(project, capsys, more + less + USER.format("olga", "owner"))
    assert (status, out.count("error:"), out.count("Coopfile:5:")) == (1, 2, 2), out
    assert "limits.memory" in out and "network.mode" in out
    assert check(project, capsys, less + USER.format("olga", "owner"))[0] == 0


@pytest.mark.parametrize(
    "override",
    [
        'limits.memory = "x"',
        "limits.cpus = 0",
        'network.mode = "x"',
        'base.image = "A B"',
        "nonsense = 1",
        'env."=" = "x"',
    ],
)
def test_formats_of_overrides(project: Path, capsys: pytest.CaptureFixture[str], override: str) -> None:
    """What is wrong in an override is said, whoever asks."""
    text = OVERRIDES.format("bob", override) + USER.format("olga", "owner")
    status, out = check(project, capsys, text)
    assert (status, "Coopfile:5:" in out) == (1, True), out


def test_an_identity_of_two_users(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who it is would depend on the order, so it is an error."""
    text = USER.format("alice", "owner") + USER.format("bob", "full").replace("irc:bob", "irc:alice")
    status, out = check(project, capsys, text)
    assert (status, "s already" in out) == (1, True), out


def test_a_missing_file_is_not_a_finding(capsys: pytest.CaptureFixture[str], project: Path) -> None:
    """A Coopfile that cannot be read is coop's own failure, 125, not 1."""
    assert main(["check", "-f", "missing"]) == 125


def test_layers_that_contradict_each_other(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One port of the host that leads to two places is told where the later layer asks for it."""
    (project / "Coopfile.local").write_text('\nnetwork.publish = ["8080:9"]\n')
    status, out = check(project, capsys, 'network.publish = ["8080:80"]\n')
    assert status == 1
    assert "Coopfile.local:2:1: error: network.publish: port 8080 of 127.0.0.1 leads to 80 already" in out
    (project / "Coopfile.local").unlink()
    user = '[[users]]\nname = "ann"\nmatch = ["x:ann"]\noverride.network.publish = ["8080:9"]\n'
    status, out = check(project, capsys, f'network.publish = ["8080:80"]\n{user}')
    assert status == 1 and "Coopfile:5:1: error: network.publish" in out
