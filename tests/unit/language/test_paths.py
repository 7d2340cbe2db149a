"""Host paths, relative paths, globs, the workspace's place and profiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.values import (
    BadValue,
    HideGlob,
    HostPath,
    Profile,
    RelativePath,
    ValueType,
    WorkspacePath,
)
from coopfile.plan.globs import compile_globs

ALL = (HostPath(), RelativePath(), HideGlob(), WorkspacePath(), Profile())


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("~/.gitconfig", "~/.gitconfig"),
        ("~//a/./b/", "~/a/b"),
        ("/opt//tools/", "/opt/tools"),
        ("/process", "/process"),
        ("/a b", "/a b"),
        ("/a/...", "/a/..."),
        ("/[id]", "/[id]"),
    ],
)
def test_a_host_path_is_normalised(text: str, path: str) -> None:
    """Doubled slashes, dots and trailing slashes do not make another path."""
    assert HostPath().parse(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "relative",
        "~",
        "~/",
        "~/.",
        "~root",
        "~user/x",
        "~/..",
        "~/a/../b",
        "/",
        "//",
        "/.",
        "/a/..",
        "/proc",
        "/proc/self",
        "//proc",
        "/./sys/fs",
        "/dev/sda",
        "$HOME/x",
        "/a\0b",
        "/a\nb",
        "/a\x1b[31m",
        "/a\u202eb",
        "/a\u2028b",
        "/a\x85b",
        "/a*",
        "/a?",
        " /a",
        "/a ",
        "/" + "x" * 256,
        "/x" * 2100,
        "/\udcff",
    ],
)
def test_a_host_path_that_is_not_what_it_looks_like_is_refused(text: str) -> None:
    """Relative, climbing, another's, the kernel's, expanded elsewhere, or not printable: refused."""
    with pytest.raises(BadValue):
        HostPath().parse(text)


@pytest.mark.parametrize(
    ("text", "path"),
    [(".claude", ".claude"), ("./a//b/", "a/b"), ("a/.hidden", "a/.hidden"), ("..a/b..", "..a/b..")],
)
def test_a_relative_path_is_normalised(text: str, path: str) -> None:
    """A relative path stays below its directory and has one spelling."""
    assert RelativePath().parse(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "./",
        "/",
        "/abs",
        "..",
        "../a",
        "a/../b",
        "a/..",
        "~",
        "~/a",
        "./~a",
        "a\0",
        "a*",
        "\t",
        "x" * 256,
    ],
)
def test_a_relative_path_that_leaves_its_directory_is_refused(text: str) -> None:
    """Absolute, climbing, empty, or about the home: refused."""
    with pytest.raises(BadValue):
        RelativePath().parse(text)


@pytest.mark.parametrize(
    ("text", "glob"),
    [
        ("**/.env*", "**/.env*"),
        ("secrets/", "secrets"),
        ("secrets/**", "secrets"),
        ("secrets/**/**", "secrets"),
        ("./a//b", "a/b"),
        ("**/**/x", "**/x"),
        ("[^a]b", "[!a]b"),
        ("a[*]b", "a[*]b"),
        ("[a-z]?", "[a-z]?"),
        ("a{b", "a{b"),
        ("[{]a,b[}]", "[{]a,b[}]"),
    ],
)
def test_a_glob_is_normalised(text: str, glob: str) -> None:
    """What changes nothing in what a glob matches is taken out."""
    assert HideGlob().parse(text) == glob


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "/",
        "/.env",
        "~/x",
        "./~x",
        "../x",
        "a/../b",
        "!keep",
        "./!keep",
        "a**b",
        "a/**b",
        "**",
        "**/*",
        "*",
        "./**",
        "[",
        "a]",
        "[]",
        "[!]",
        "[]a]",
        "[a/b]",
        "[z-a]",
        "[a--]",
        "[[:alpha:]]",
        "*.{pem,key}",
        "a\\*",
        "a\0",
    ],
)
def test_a_glob_that_would_match_something_else_than_it_seems_is_refused(text: str) -> None:
    """A hide pattern that silently matched nothing would leave secrets in sight."""
    with pytest.raises(BadValue):
        HideGlob().parse(text)


@given(st.text(alphabet="ab*?[]!-^./{},~&| \\", min_size=1, max_size=12))
def test_every_accepted_glob_is_stable(text: str) -> None:
    """Parsing what was parsed changes nothing, and what has no wildcard names itself."""
    try:
        glob = HideGlob().parse(text)
    except BadValue:
        return
    assert HideGlob().parse(glob) == glob
    if not set("*?[").intersection(glob):
        assert compile_globs([glob])(glob)


@pytest.mark.parametrize(
    ("glob", "path", "hidden"),
    [
        (".env", ".env", True),
        (".env", "a/.env", False),
        ("**/.env", ".env", True),
        ("**/.env", "a/b/.env", True),
        ("*", "x", None),
        ("*.pem", ".pem", True),
        ("*.pem", "a/x.pem", False),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a?c", "a/c", False),
        ("[!a]b", "xb", True),
        ("[!a]b", "ab", False),
        ("a[*]b", "a*b", True),
        ("a[*]b", "axb", False),
        ("A", "a", False),
    ],
)
def test_globs_mean_what_their_documentation_says(glob: str, path: str, hidden: bool | None) -> None:
    """The matcher of the plan agrees with the meaning that the type documents."""
    if hidden is None:
        with pytest.raises(BadValue):
            HideGlob().parse(glob)
        return
    assert compile_globs([HideGlob().parse(glob)])(path) is hidden


@pytest.mark.parametrize(
    ("text", "path"),
    [("host", "host"), ("/workspace", "/workspace"), ("//src/./app/", "/src/app"), ("/libs", None)],
)
def test_the_workspace_goes_to_a_place_of_its_own(text: str, path: str | None) -> None:
    """An absolute path is normalised; what looks like the system's libraries is refused."""
    if path is None:
        with pytest.raises(BadValue):
            WorkspacePath().parse(text)
    else:
        assert WorkspacePath().parse(text) == path


SYSTEM = ("/", "//", "/usr", "/usr/src/app", "/etc/x", "/proc/1", "/dev", "/sys", "/tmp", "/tmp/", "/lib64/x")


@pytest.mark.parametrize("text", [*SYSTEM, "/bin", "/root", "/run/x", "/home", "/var/run/x", "/nix/store/x"])
def test_the_workspace_does_not_go_over_what_the_sandbox_is_made_of(text: str) -> None:
    """System directories and shared places are refused, and the help names another."""
    with pytest.raises(BadValue) as error:
        WorkspacePath().parse(text)
    assert "/workspace" in str(error.value.help)


@pytest.mark.parametrize("text", ["", "work", "~/x", "Host", "/a/../b", "/a\0", "/a*", "/a "])
def test_a_workspace_that_is_no_clean_absolute_path_is_refused(text: str) -> None:
    """Relative paths, climbing, globs and control characters are refused."""
    with pytest.raises(BadValue):
        WorkspacePath().parse(text)


def test_a_workspace_below_tmp_is_allowed() -> None:
    """Only /tmp itself is taken."""
    assert WorkspacePath().parse("/tmp/x") == "/tmp/x"


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("restrictive", "restrictive"),
        ("permissive", "permissive"),
        ("/etc/x.sb", "/etc/x.sb"),
        ("~/a/", "~/a"),
        ("./x//y.sb", "./x/y.sb"),
    ],
)
def test_a_profile_is_a_name_or_a_path(text: str, profile: str) -> None:
    """Names stand for themselves; paths are normalised."""
    assert Profile().parse(text) == profile


@pytest.mark.parametrize(
    "text", ["strict", "x.sb", "a/b.sb", "../x", "./../x", "./", "~user/x", "/x\0", 'a"b']
)
def test_a_profile_that_is_neither_is_refused(text: str) -> None:
    """A misspelt name is not taken for a file, and a path does not climb."""
    with pytest.raises(BadValue):
        Profile().parse(text)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("raw", [None, True, 0, 1.5, [], ["/a"], {}, {"a": 1}])
def test_a_path_is_a_string(kind: ValueType, raw: object) -> None:
    """Every other type is refused, and the error says what was found."""
    with pytest.raises(BadValue, match="expected"):
        kind.parse(raw)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: type(kind).__name__)
@given(text=st.text(alphabet=st.sampled_from("/.~ab*\0\n$ "), max_size=12) | st.text(max_size=20))
def test_accepted_paths_have_no_climbing_and_no_control_characters(kind: ValueType, text: str) -> None:
    """Whatever gets through is normal: parsing it again gives the same."""
    try:
        path = kind.parse(text)
    except BadValue:
        return
    assert ".." not in path.split("/")
    assert not any(ord(char) < 32 or ord(char) == 127 for char in path)
    assert kind.parse(path) == path
