"""Facts as JSON: what is written is read back, defaults fill in, and every mistake is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.errors import CoopError
from coopfile.language.items import Variable
from coopfile.plan.launch import Host
from coopfile.render.facts import Engine, Entry, Facts
from coopfile.render.factsfile import LARGEST, from_json, to_json

FIXTURES = sorted((Path(__file__).parent / "facts").glob("*.json"))
SMALL: dict[str, Any] = {"host": {"uid": 1000, "home": "/home/you", "workspace": "/home/you/shop"}}


def read(data: object) -> Facts:
    """Read facts from data."""
    return from_json(json.dumps(data))


def message(data: object) -> str:
    """Return the message of the error that reading data is."""
    with pytest.raises(CoopError) as caught:
        read(data)
    assert caught.value.remedy is not None
    return caught.value.message


def with_value(place: str, value: object) -> dict[str, Any]:
    """Return the small facts with another value at a dotted place."""
    data: dict[str, Any] = json.loads(json.dumps(SMALL))
    table = data
    *holders, last = place.split(".")
    for name in holders:
        table = table.setdefault(name, {})
    table[last] = value
    return data


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_what_is_written_is_read_back(path: Path) -> None:
    """Reading, writing and reading again gives the same facts."""
    facts = from_json(path.read_bytes(), path.name)
    variables = (Variable("ANTHROPIC_API_KEY", None, "ANTHROPIC_API_KEY"),)
    assert from_json(to_json(facts, variables)) == facts


def test_every_field_is_written_and_read() -> None:
    """No field of the records is left out, in either direction."""
    engine = Engine(
        "docker", "d", "1", True, True, True, ("r",), "r", "d", ("cpu",), False, "/i", False, True
    )
    host = Host(1, 2, "u", "/h", "/w", "/w/d", {"LANG": "C"}, "/bin/x", 9, "/d")
    tools = (Entry("bind", "/a", "/b"),)
    paths = {name: (f"/{name}",) for name in ("hidden", "inputs", "private", "mounted", "temporary")}
    facts = Facts(
        host,
        "linux",
        engine,
        {"/k": "file"},
        real={"/r": "/s"},
        tools=tools,
        masks="/m",
        accounts="/a",
        proxy=8877,
        **paths,
    )
    text = to_json(facts)
    assert from_json(text) == facts
    data = json.loads(text)
    for record, written in ((facts, data), (host, data["host"]), (engine, data["engine"])):
        fields = [name for name in record._fields if name != "session"]  # no fact of the machine
        assert set(written) == set(fields)
        differs = [name for name in fields if getattr(record, name) == getattr(type(record), name, None)]
        assert differs in ([], ["system"]), "give the new field a value that is not its default"


def test_linux_needs_an_account_and_two_directories() -> None:
    """The rest has defaults: the group is the user's, the directory the workspace."""
    facts = read(SMALL)
    data = "/home/you/.local/share/coop"
    assert facts.host == Host(
        1000, 1000, "you", "/home/you", "/home/you/shop", "/home/you/shop", {}, data=data
    )
    assert (facts.system, facts.engine, facts.temporary) == ("linux", None, ())
    assert facts.masks == "/home/you/.local/state/coop/masks"
    for name in SMALL["host"]:
        broken = json.loads(json.dumps(SMALL))
        del broken["host"][name]
        assert f"host.{name}: it has to be given" in message(broken)


def test_a_mac_has_the_first_accounts_ids() -> None:
    """On macOS the ids do not matter to an engine, and are those of the first account."""
    host = {"home": "/Users/you", "workspace": "/Users/you/shop"}
    facts = read({"system": "darwin", "host": host})
    assert (facts.host.uid, facts.host.gid) == (501, 20)


def test_windows_paths_are_drives() -> None:
    """On Windows every path of the host begins with a drive, and is held as it is seen inside."""
    host = {"home": "C:\\Users\\you", "workspace": "d:/src/shop"}
    facts = read({"system": "windows", "host": host, "kinds": {"D:\\src\\shop\\.git\\config": "file"}})
    assert (facts.host.home, facts.host.workspace) == ("/c/Users/you", "/d/src/shop")
    assert facts.kinds["/d/src/shop/.git"] == "directory"
    assert json.loads(to_json(facts))["host"]["workspace"] == "D:\\src\\shop"
    wrong = {"system": "windows", "host": {**host, "home": "\\\\server\\you"}, "hidden": ["/home/you/x"]}
    text = message(wrong)
    assert "host.home:" in text
    assert "UNC" in text
    assert "hidden.0:" in text


def test_directories_above_what_is_named_are_there() -> None:
    """A path that exists stands in directories, which need not be named."""
    kinds = read(with_value("kinds", {"/w/.git/hooks": "directory", "/w/a": "link"})).kinds
    assert kinds == {
        "/w/.git/hooks": "directory",
        "/w/a": "link",
        "/w/.git": "directory",
        "/w": "directory",
    }


def test_engine_has_a_name_and_defaults() -> None:
    """An engine is what it usually is, but for what is said of it."""
    assert read(with_value("engine", {"name": "apple"})).engine == Engine("apple", "container")
    engine = read(with_value("engine", {"name": "podman", "limits": ["pids"], "rootless": True})).engine
    assert engine == Engine("podman", "podman", limits=("pids",), rootless=True)
    assert "engine.name: it has to be given" in message(with_value("engine", {"rootless": True}))


SECRET = "s3cret-value"


def test_secrets_are_not_written() -> None:
    """Of the environment only what every sandbox gets is written, and that other variables are set."""
    environment = {"LANG": "C", "TOKEN": SECRET, "PATH": SECRET, "TERM": SECRET, "LC_ALL": "C.UTF-8"}
    host = Host(0, 0, "root", "/root", "/w", "/w", environment, data="/d")
    variables = (Variable("T", None, "TOKEN"), Variable("TERM", None, "TERM"), Variable("X", None, "UNSET"))
    text = to_json(Facts(host), variables)
    assert SECRET not in text
    assert json.loads(text)["host"]["environment"] == {
        "LANG": "C",
        "LC_ALL": "C.UTF-8",
        "TERM": None,
        "TOKEN": None,
    }
    assert from_json(text).host.environment == {"LANG": "C", "LC_ALL": "C.UTF-8", "TERM": "", "TOKEN": ""}


MISTAKES: list[tuple[str, object, str]] = [
    ("system", "linus", 'system: "linus" is none of linux, darwin, windows; did you mean "linux"?'),
    ("sytem", "linux", '"sytem" is not known; did you mean "system"?'),
    ("host.hom", "/x", 'host: "hom" is not known; did you mean "home"?'),
    ("host", [], "host: a list is not an object"),
    ("host.uid", "0", 'host.uid: "0" is not a whole number'),
    ("host.uid", True, "host.uid: true is not a whole number"),
    ("host.uid", -1, "host.uid: -1 is not a whole number"),
    ("host.uid", 2**32 - 1, "host.uid: 4294967295 is not the number of an account"),
    ("host.home", "home/you", 'host.home: "home/you" is a relative path'),
    ("host.home", "/home/../you", "host.home:"),
    ("host.home", "/home/you/", "shortest form"),
    ("host.home", "/home//you", "shortest form"),
    ("host.home", "/home/\nyou", "has a control character"),
    ("host.home", "/home/\x7f", "has a control character"),
    ("host.home", "", "host.home: it is empty"),
    ("host.home", None, "host.home:"),
    ("host.home", "/" + "x" * 4096, "longer than 4,096 bytes"),
    ("host.home", "/\ud800", "surrogate"),
    ("host.environment", {"A=B": "c"}, 'host.environment: "A=B" is not the name of a variable'),
    ("host.environment", {"A": 1}, "host.environment: A: 1 is not a text"),
    ("host.environment", {"A": "\0"}, "NUL"),
    ("host.environment", [], "host.environment: a list is not an object"),
    ("host.shell", "bash", "host.shell:"),
    ("engine", "docker", 'engine: "docker" is not an object'),
    ("engine", {"name": "dokcer"}, 'did you mean "docker"?'),
    ("engine", {"name": "docker", "rootles": True}, 'did you mean "rootless"?'),
    ("engine", {"name": "docker", "rootless": 1}, "engine.rootless: 1 is neither true nor false"),
    ("engine", {"name": "docker", "limits": ["cpus"]}, 'did you mean "cpu"?'),
    ("engine", {"name": "docker", "limits": "cpu"}, "engine.limits:"),
    ("engine", {"name": "docker", "program": "-H"}, "engine.program:"),
    ("engine", {"name": "docker", "program": "A=b"}, "engine.program:"),
    ("engine", {"name": "docker", "runtime": "--x"}, "engine.runtime:"),
    *(("proxy", port, f"proxy: {port} is not a port") for port in (0, -1, 65536)),
    ("proxy", "8877", 'proxy: "8877" is not a port'),
    ("proxy", True, "proxy: true is not a port"),
    ("kinds", {"/a": "fil"}, 'kinds./a: "fil" is none of'),
    ("kinds", {"a": "file"}, 'kinds: "a" is a relative path'),
    ("kinds", ["/a"], "kinds: a list is not an object"),
    ("hidden", ["a"], "hidden.0:"),
    ("hidden", "/a", "hidden:"),
    ("hidden", [1], "hidden.0: 1 is not a text"),
    ("real", {"/a": "b"}, "real./a:"),
    ("tools", [{"kind": "bind", "path": "/usr"}], "tools.0.content:"),
    ("tools", [{"kind": "link", "path": "/bin", "content": ""}], "tools.0.content: it is empty"),
    ("tools", [{"kind": "socket", "path": "/x"}], "tools.0.kind:"),
    ("tools", [{"path": "/x"}], "tools.0: an entry has a kind and a path"),
    ("masks", "masks", "masks:"),
]


@pytest.mark.parametrize(("place", "value", "told"), MISTAKES)
def test_a_mistake_is_named_with_its_place(place: str, value: object, told: str) -> None:
    """Each mistake is told where it is, and what would be right where that can be guessed."""
    assert told in message(with_value(place, value))


def test_all_mistakes_are_named_at_once() -> None:
    """Mistakes in several places are in one message, and too many are counted."""
    text = message({"host": {"uid": "x", "gid": "y"}, "hiden": [], "kinds": {"a": "b"}})
    for place in ("host.uid", "host.gid", "host.home", "host.workspace", "hiden", "kinds"):
        assert place in text
    assert "and 92 more" in message(with_value("hidden", list(range(100))))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("[]", "a list is not an object"),
        ("{", "not JSON"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ('{"host": {"uid": 1.5}}', "not a whole number"),
        ('{"host": {"uid": NaN}}', "not a whole number"),
        ("[" * 100_000, "not JSON"),
        (" " * (LARGEST + 1), "longer than"),
    ],
)
def test_what_is_no_such_json_is_refused(text: str, told: str) -> None:
    """Empty, broken, too deep and too long texts are errors that name the file."""
    with pytest.raises(CoopError, match="my facts") as caught:
        from_json(text, "my facts")
    assert told in caught.value.message


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    """A file in another encoding is an error, not a traceback."""
    with pytest.raises(CoopError, match="not JSON"):
        from_json(b'{"a": "\xff"}')


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["host", "kinds"]), inner),
    max_leaves=20,
)


@given(st.sampled_from(["host", "engine", "kinds", "hidden", "tools", "real", "masks", "system"]), _JSON)
def test_any_json_is_read_or_refused(name: str, value: object) -> None:
    """Whatever stands in a field, reading gives facts or a CoopError that can be printed."""
    try:
        facts = read({**SMALL, name: value})
    except CoopError as error:
        assert all(line.isprintable() for line in error.message.split("\n"))
    else:
        assert isinstance(facts, Facts)


def test_tools_are_read() -> None:
    """Entries of the host's tools keep their kind, path and content."""
    tools = [
        {"kind": "file", "path": "/etc/passwd", "content": "a\nb\n"},
        {"kind": "directory", "path": "/x"},
    ]
    assert read(with_value("tools", tools)).tools == (
        Entry("file", "/etc/passwd", "a\nb\n"),
        Entry("directory", "/x"),
    )
