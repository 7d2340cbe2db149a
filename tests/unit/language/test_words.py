"""Words, names, commands, identities; and lists, variables and back ends made of them."""

from __future__ import annotations

import pytest
import tomli
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.items import Variable
from coopfile.language.values import (
    Argument,
    Backends,
    BadValue,
    Choice,
    Environment,
    Flag,
    Identity,
    ListOf,
    PackageName,
    RuntimeName,
    ShellCommand,
    UserName,
    ValueType,
)

MODE = Choice("none", "proxy", "veth", "host", aliases={"bridge": "veth"})


def test_an_alias_comes_out_as_what_it_stands_for() -> None:
    """Plans know one name only."""
    assert MODE.parse("bridge") == "veth"


@pytest.mark.parametrize(
    ("text", "meant"), [("nome", "none"), ("NONE", "none"), ("vteh", "veth"), ("brigde", "bridge")]
)
def test_a_misspelt_word_is_answered_with_the_right_one(text: str, meant: str) -> None:
    """The help names the nearest word and all that are allowed."""
    with pytest.raises(BadValue) as error:
        MODE.parse(text)
    assert f'did you mean "{meant}"?' in str(error.value.help)
    assert '"proxy"' in str(error.value.help)


@pytest.mark.parametrize("raw", ["true", "yes", 0, 1, None, [], "off"])
def test_a_flag_is_a_boolean(raw: object) -> None:
    """Nothing is taken for true or false but true and false."""
    with pytest.raises(BadValue):
        Flag().parse(raw)


def test_a_quoted_flag_is_answered_with_the_bare_one() -> None:
    """The help turns other languages' spellings into TOML's."""
    for raw, meant in (("true", "true"), ("No", "false"), ("on", "true")):
        with pytest.raises(BadValue) as error:
            Flag().parse(raw)
        assert error.value.help == f"write {meant}, without quotes"


@pytest.mark.parametrize(
    "text",
    [
        "g++",
        "libfoo:amd64",
        "pkg=1.2-3",
        "pytest==8.4.1",
        "uvicorn[standard]>=0.30,<1",
        "@scope/pkg@^1.2",
        "a",
        "7zip",
        "foo~=1.0",
        "ripgrep@14",
        "libc6.1-dev",
        "x==1.*",
        "git+https://example.com/x.git",
    ],
)
def test_a_package_keeps_what_its_manager_needs(text: str) -> None:
    """Versions, architectures, extras and scopes pass unchanged."""
    assert PackageName().parse(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-y",
        "--allow-unauthenticated",
        "a b",
        "a;b",
        "a&b",
        "a|b",
        "$(x)",
        "`x`",
        "a'b",
        'a"b',
        "a\\b",
        "a\nb",
        "a\x00",
        "(a)",
        "a{b}",
        "a#b",
        "./local.deb",
        "/x.deb",
        "<a",
        "*",
        "é",
        "a\tb",
        " a",
        "a?",
    ],
)
def test_what_a_shell_or_a_manager_could_take_for_more_is_no_package(text: str) -> None:
    """Options, white space and the shell's characters are refused."""
    with pytest.raises(BadValue):
        PackageName().parse(text)


@pytest.mark.parametrize("text", ["runsc", "io.containerd.runsc.v1", "kata-qemu", "crun"])
def test_a_runtime_is_a_name(text: str) -> None:
    """Names as engines have them pass unchanged."""
    assert RuntimeName().parse(text) == text


@pytest.mark.parametrize(
    "text", ["", "-x", "--runtime", "/usr/bin/runc", "a/b", "../x", ".hidden", "a b", "a\0", "é"]
)
def test_a_runtime_is_neither_an_option_nor_a_path(text: str) -> None:
    """What an engine could read as something else is refused."""
    with pytest.raises(BadValue):
        RuntimeName().parse(text)


@pytest.mark.parametrize("text", ["make", "a && b", "line\n\tline\n", "-x", "echo 'é'"])
def test_a_command_for_the_shell_may_have_lines(text: str) -> None:
    """It passes as it was written."""
    assert ShellCommand().parse(text) == text
    assert Argument().parse(text) == text


@pytest.mark.parametrize("text", ["a\0b", "a\rb", "a\x1b[2J", "a\x7f", "a\u202eb", "a\x9b", "\udc80"])
def test_a_command_has_no_control_characters(text: str) -> None:
    """What could steer the terminal it is shown on is refused, and so are bytes that are not UTF-8."""
    for kind in (ShellCommand(), Argument()):
        with pytest.raises(BadValue):
            kind.parse(text)


def test_an_argument_may_be_empty_but_a_program_and_a_command_may_not() -> None:
    """Empty arguments have a meaning; empty programs have none."""
    command = ListOf(Argument(), ordered=True)
    assert command.parse(["x", ""]) == ("x", "")
    with pytest.raises(BadValue) as error:
        command.parse(["", "x"])
    assert error.value.path == (0,)
    for text in ("", " \n"):
        with pytest.raises(BadValue):
            ShellCommand().parse(text)


@pytest.mark.parametrize(
    "text", ["signal:+15555550100", "terminal:default", "email:bob@example.com", "x:y:z"]
)
def test_an_identity_is_a_channel_and_a_sender(text: str) -> None:
    """It passes unchanged, for it is matched as a whole."""
    assert Identity().parse(text) == text


@pytest.mark.parametrize(
    "text", ["", "bob", ":x", "signal:", "Signal:x", "a b:c", "a:b c", "a:\0", "signal:*", "a:\u202e"]
)
def test_what_could_match_nobody_or_everybody_is_no_identity(text: str) -> None:
    """Patterns, spaces and missing halves are refused."""
    with pytest.raises(BadValue):
        Identity().parse(text)


@pytest.mark.parametrize("text", ["", "-a", "a b", "a/b", "é", "a" * 65, "a\0", "_"])
def test_a_users_name_is_plain(text: str) -> None:
    """What would need quoting anywhere is refused."""
    with pytest.raises(BadValue):
        UserName().parse(text)


def test_an_unordered_list_is_sorted_and_has_no_repetitions() -> None:
    """Equal sets are equal values."""
    kind = ListOf(PackageName(), ordered=False)
    assert kind.parse(["b", "a", "b"]) == kind.parse(["a", "b"]) == ("a", "b")


def test_an_ordered_list_is_as_it_was_written() -> None:
    """Order and repetitions mean something there."""
    assert ListOf(ShellCommand(), ordered=True).parse(["b", "a", "b"]) == ("b", "a", "b")


def test_a_list_reports_all_its_bad_items() -> None:
    """Each problem has the index of its item."""
    with pytest.raises(BadValue) as error:
        ListOf(PackageName(), ordered=False).parse(["-a", "b", 3])
    assert [problem.path for problem in error.value.problems] == [(0,), (2,)]


def test_a_string_for_a_list_is_answered_with_the_list() -> None:
    """The help puts it into brackets."""
    with pytest.raises(BadValue) as error:
        ListOf(PackageName(), ordered=False).parse("git")
    assert error.value.help == 'write ["git"]'
    with pytest.raises(BadValue) as error:
        ListOf(Argument(), ordered=True).parse("claude -p 'a b'")
    assert error.value.help == 'write ["claude", "-p", "a b"]'


def test_variables_are_sorted_by_name() -> None:
    """A literal, the empty literal and a host's variable have their own forms."""
    raw = {"B": "", "A": {"host": "X"}, "C": "line\nline"}
    assert Environment().parse(raw) == (
        Variable("A", host="X"),
        Variable("B", value=""),
        Variable("C", value="line\nline"),
    )


@pytest.mark.parametrize(
    ("raw", "path", "at_key"),
    [
        ({"A=B": "x"}, ("A=B",), True),
        ({"": "x"}, ("",), True),
        ({"1A": "x"}, ("1A",), True),
        ({"A B": "x"}, ("A B",), True),
        ({"A\0": "x"}, ("A\0",), True),
        ({"É": "x"}, ("É",), True),
        ({"COOP_X": "x"}, ("COOP_X",), True),
        ({"A": 1}, ("A",), False),
        ({"A": True}, ("A",), False),
        ({"A": ["x"]}, ("A",), False),
        ({"A": "x\0"}, ("A",), False),
        ({"A": "\x1b[0m"}, ("A",), False),
        ({"A": "x" * 200_000}, ("A",), False),
        ({"A": {}}, ("A",), False),
        ({"A": {"hots": "X"}}, ("A", "hots"), True),
        ({"A": {"host": "X", "default": "y"}}, ("A", "default"), True),
        ({"A": {"host": "X=Y"}}, ("A", "host"), False),
        ({"A": {"host": 1}}, ("A", "host"), False),
        ({"A": {"host": ""}}, ("A", "host"), False),
    ],
)
def test_a_bad_variable_is_reported_where_it_is_bad(raw: object, path: tuple[str, ...], at_key: bool) -> None:
    """A bad name is a problem of the key, a bad value one of the value."""
    with pytest.raises(BadValue) as error:
        Environment().parse(raw)
    (problem,) = error.value.problems
    assert (problem.path, problem.at_key) == (path, at_key)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("auto", ("auto",)),
        (["podman", "native"], ("podman", "native")),
        (["auto"], ("auto",)),
        ("native", ("native",)),
    ],
)
def test_back_ends_are_one_or_several_in_order(raw: object, value: tuple[str, ...]) -> None:
    """The order of preference is kept."""
    assert Backends("auto", "native", "podman").parse(raw) == value


@pytest.mark.parametrize(
    "raw", [[], "docker", ["native", "native"], ["auto", "native"], [["native"]], 1, None, {}]
)
def test_back_ends_that_mean_nothing_are_refused(raw: object) -> None:
    """Empty lists, repetitions, auto among others, and unknown names."""
    with pytest.raises(BadValue):
        Backends("auto", "native", "podman").parse(raw)


@pytest.mark.parametrize(
    "kind",
    [MODE, ShellCommand(), Argument(), ListOf(ShellCommand(), ordered=True), Environment()],
    ids=lambda kind: type(kind).__name__,
)
@given(data=st.data())
def test_what_is_shown_reads_back(kind: ValueType, data: st.DataObject) -> None:
    """Showing a value gives TOML that parses to the same value, whatever characters it has."""
    text = st.text(max_size=12)
    raw = {
        "Choice": st.sampled_from(["none", "bridge"]),
        "ListOf": st.lists(text, max_size=3),
        "Environment": st.dictionaries(st.sampled_from("ABC"), text | st.just({"host": "X"}), max_size=3),
    }.get(type(kind).__name__, text)
    try:
        value = kind.parse(data.draw(raw))
    except BadValue:
        return
    assert kind.parse(tomli.loads(f"v = {kind.show(value)}")["v"]) == value
