"""Whole Coopfiles: keys, shapes, values, layers, ceiling and versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from coopfile.language.diagnostics import render
from coopfile.language.items import HostPattern, Variable
from coopfile.language.merging import Origin
from coopfile.language.reading import read
from coopfile.language.settings import BY_KEY, SETTINGS
from tests.unit.language.texts import marked, problem, problems, reading, settings

EXAMPLES = sorted((Path(__file__).resolve().parents[3] / "examples").glob("*Coopfile"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_right(path: Path) -> None:
    """The examples have neither errors nor warnings."""
    assert reading(path.read_bytes()).warnings == ()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_settings_example_is_read_with_its_line(setting: object) -> None:
    """Each row of the table can be written in a file, and its value knows where."""
    key, example = setting.key, setting.example  # type: ignore[attr-defined]
    found = settings(f"coop = 1\n{key} = {example}\n")
    assert Origin("project", "Coopfile", 2) in found.origins(key)


@pytest.mark.parametrize(
    ("text", "mark", "help"),
    [
        ('memroy = "2g"', "1:memroy", "did you mean limits.memory?"),
        ('memory = "2g"', "1:memory", "memory belongs in [limits]"),
        ('[network]\nmemory = "2g"', "2:memory", "memory belongs in [limits]"),
        ('[networks]\nmode = "none"', "1:networks", "did you mean [network]?"),
        ("[network]\nmodes = 1", "2:modes", "did you mean mode?"),
        ("[limit.x]\ny = 1", "1:limit", "did you mean [limits]?"),
        ("[limits]\nram = 1", "2:ram", "did you mean limits.memory?"),
        ("[limits]\nnetwork = 'none'", "2:network", "[network] is a table of its own, not part of [limits]"),
        ("[limits]\ncoop = 1", "2:coop", "coop stands at the top of the file"),
        ("[tools]\nzzz = 1", "2:zzz", "it has confirm"),
        ("packages.brew = []", "1:brew", "it has apt, apk, dnf, pip, npm, cargo"),
        ('"a\x1bb" = 1', "", ""),
    ],
)
def test_an_unknown_key_is_sent_where_it_belongs(text: str, mark: str, help: str) -> None:
    """The key is marked, not its value; the help is one guess or the whole choice."""
    found = problem(text)
    if not mark:
        assert "\x1b" not in render([found])
        return
    assert found.code == "unknown-key" and marked(found) == mark
    assert help in str(found.help)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("network = 5", "network is a table, not the integer 5"),
        ('network = "none"', 'network is a table, not the string "none"'),
        ("[[network]]\nmode = 'none'", "network is a table, not an array"),
        ("users = 1", "users is an array of tables, not the integer 1"),
        ("[users]\nname = 'a'", "users is an array of tables, not a table"),
        ("users = ['a']", 'a user is a table, not the string "a"'),
        ("[[users]]\nname = 'a'\nmatch = ['a:b']\noverride = 1", "override is a table, not the integer 1"),
        (
            "[[users]]\nname = 'a'\nmatch = ['a:b']\noverride.limits = 1",
            "limits is a table, not the integer 1",
        ),
        ("env = []", "expected a table, not an array"),
        ("env = 1979-05-27", "expected a table, not a date or time"),
        ("base.image = ['a']", "expected an image"),
        ("files.read = '/a'", "expected an array"),
        ("files.read = [['/a']]", "expected a path of the host"),
        ("files.read = { a = 1 }", "expected an array, not a table"),
        ("limits.memory = {}", "expected a size"),
        ("limits.pids.x = 1", "expected a whole number, not a table"),
        ("sandbox.enabled = 1", "expected true or false"),
        ("coop = '1'", "expected the version"),
        ("coop = 1.0", "expected the version"),
        ("coop = true", "expected the version"),
        ("coop = 0", "expected the version"),
        ("coop = []", "expected the version"),
        ("session.persist = ['../x']", '".."'),
        ("session.persist = ['/x']", "absolute"),
        ("session.persist = ['~bob']", "begins with ~"),
        ("files.read = ['~bob/x']", "another user's home"),
        ("network.publish = ['70000']", "70000"),
        ('network.allow = ["a\\u0000b"]', "NUL"),
        ("limits.memory = '2 gb'", "not a size"),
        ("limits.memory = '-1g'", "negative"),
        ("limits.memory = '0g'", "too little"),
        ("limits.pids = 0", "out of range"),
        ("limits.cpus = nan", "out of range"),
        ("limits.cpus = inf", "out of range"),
        ("limits.timeout = '0s'", "no time"),
        ("env.'A=B' = 'c'", "not the name of a variable"),
        ("base.image = 'x@sha256:abc'", "64 hexadecimal digits"),
    ],
)
def test_a_mistake_is_reported_once_and_says_what_is_wrong(text: str, message: str) -> None:
    """Wrong types at every depth, and values that no sandbox could have."""
    found = problem(text)
    assert message in found.message
    assert found.position and found.position.line > 0


def test_all_problems_are_reported_in_order() -> None:
    """One run shows everything, file by file, line by line."""
    found = problems(
        "[limits]\npids = 0\nmemory = 1\n[files]\nread = ['a', '/ok', 'b']\n[x]\n",
        user="[limits]\ncpus = -1\n",
        environment={"COOP_NETWORK_MODE": "x"},
        assignments=["a.b=c"],
    )
    assert [str(one.position) for one in found] == [
        "~/.config/coop/Coopfile:2:8",
        "Coopfile:2:8",
        "Coopfile:3:10",
        "Coopfile:5:9",
        "Coopfile:5:21",
        "Coopfile:6:2",
        "COOP_NETWORK_MODE",
        "--set a.b",
    ]


def test_a_flood_of_problems_is_cut() -> None:
    """The first hundred of a file are shown, and the number of the others."""
    found = problems("".join(f"k{number} = 1\n" for number in range(150)))
    assert len(found) == 101
    assert found[-1].message == "there are 50 more problems in this file"


def test_a_later_language_is_the_only_thing_said_about_a_file() -> None:
    """What else seems wrong may be right in that language."""
    found = problem("coop = 2\nsomething = 'new'\n")
    assert found.message == "the file is written in version 2 of the language; this coop knows version 1"
    assert marked(found) == "1:2"


def test_layers_count_in_their_order() -> None:
    """Each layer is above the one before it, wherever it stands in the call."""
    values = {
        "user": "limits.pids = 10",
        "project": "limits.pids = 20",
        "local": "limits.pids = 30",
    }
    assert settings(values["project"], user=values["user"]).value("limits.pids") == 20
    assert settings(**values).value("limits.pids") == 30
    everything = settings(**values, environment={"COOP_LIMITS_PIDS": "40"})
    assert everything.value("limits.pids") == 40
    everything = settings(**values, environment={"COOP_LIMITS_PIDS": "40"}, assignments=["limits.pids=50"])
    assert everything.value("limits.pids") == 50
    assert [str(origin) for origin in everything.origins("limits.pids")] == ["--set limits.pids"]


def test_without_any_file_the_defaults_count() -> None:
    """A directory without a Coopfile has a plan too."""
    assert read([]).settings().values == settings().values


def test_only_the_layers_asked_for_count() -> None:
    """What a project adds can be told from what its reader has anyway."""
    found = reading("limits.pids = 20\n[env]\nA = 'p'", user="limits.pids = 10\n[env]\nA = 'u'\nB = 'u'")
    own = found.settings(layers=("default", "user"))
    assert own.value("limits.pids") == 10
    assert own.value("env") == (Variable("A", value="u"), Variable("B", value="u"))
    assert found.settings(layers=()).value("limits.pids") == 512


def test_lists_add_up_and_each_item_knows_its_line() -> None:
    """Of an item in two layers the first is remembered."""
    found = settings(
        'network.allow = [\n  "b.org",\n  "a.org"\n]',
        user='network.allow = ["b.org"]',
        local='network.allow = ["c.org"]',
    )
    assert found.value("network.allow") == (HostPattern("a.org"), HostPattern("b.org"), HostPattern("c.org"))
    assert [str(origin) for origin in found.origins("network.allow")] == [
        "Coopfile:3",
        "~/.config/coop/Coopfile:1",
        "Coopfile.local:1",
    ]


def test_built_in_items_stay_and_say_so() -> None:
    """A file adds to the protected paths and cannot take one away."""
    found = settings('workspace.protect = ["a"]')
    pairs = dict(zip(found.value("workspace.protect"), found.origins("workspace.protect"), strict=True))
    assert str(pairs["a"]) == "Coopfile:1" and str(pairs[".git/hooks"]) == "built in"


def test_ordered_lists_follow_their_layers() -> None:
    """Set-up commands run in the order of the layers; a command replaces the other."""
    found = settings(
        'setup.run = ["b", "a"]\nagent.command = ["x"]', user='setup.run = ["z"]\nagent.command = ["y", "z"]'
    )
    assert found.value("setup.run") == ("z", "b", "a")
    assert found.value("agent.command") == ("x",)
    assert [origin.layer for origin in found.origins("setup.run")] == ["user", "project", "project"]


def test_variables_replace_each_other_one_by_one() -> None:
    """A later layer's variable wins, the others stay."""
    found = settings('[env]\nA = "p"\nC = "p"', user='[env]\nA = { host = "A" }\nB = "u"')
    assert [str(variable) for variable in found.value("env")] == ["A=p", "B=u", "C=p"]
    assert [origin.line for origin in found.origins("env")] == [2, 3, 3]


def test_every_key_has_a_value_and_an_origin() -> None:
    """Defaults are built in, and lists have one origin for each item."""
    found = settings()
    for key in BY_KEY:
        value = found.value(key)
        assert len(found.origins(key)) == (len(value) if isinstance(value, tuple) else 1)
        assert {str(origin) for origin in found.origins(key)} <= {"built in"}


def test_the_ceiling_is_the_users_own() -> None:
    """It is read from their file, and refused anywhere else."""
    found = reading("", user='[ceiling]\nlimits.memory = "1g"\nnetwork.mode = "proxy"\n')
    assert {key: valued.value for key, valued in found.ceiling.items()} == {
        "limits.memory": 1 << 30,
        "network.mode": "proxy",
    }
    assert str(found.ceiling["network.mode"].origins[0]) == "~/.config/coop/Coopfile:3"
    for more in ({"project": "[ceiling]\nbad = 1"}, {"local": "[ceiling]\nlimits.memory = 1"}):
        refused = problem(**more)
        assert refused.code == "ceiling" and marked(refused) == "1:ceiling"


def test_a_ceiling_is_validated_like_settings() -> None:
    """Unknown keys, wrong values and keys that are no settings."""
    found = problems("", user="[ceiling]\nlimits.memory = 1\nnetwork.mod = 'none'\ncoop = 1\n")
    assert [marked(one) for one in found] == ["2:1", "3:mod", "4:coop"]


def test_no_control_character_of_a_file_is_shown_raw() -> None:
    """Escape sequences in keys, values and comments come out escaped."""
    text = '[limits]\nmemory = "\\u001b[31m" # \u202e\n"\\u001b]0;x" = 1\n[files]\nread = ["/a\\u0007"]\n'
    for part in render(problems(text)).split("\n"):
        assert part.isprintable()
