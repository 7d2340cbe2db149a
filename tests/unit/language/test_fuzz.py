"""Whatever bytes a file holds, reading gives settings or an error for people."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from coopfile.language.diagnostics import CoopfileError, to_json
from coopfile.language.settings import SETTINGS
from coopfile.plan.resolve import resolve
from tests.unit.language.texts import reading

FILES = [path.read_bytes() for path in (Path(__file__).resolve().parents[3] / "examples").glob("*Coopfile")]
FILES.append("".join(f"{setting.key} = {setting.example}\n" for setting in SETTINGS).encode())

PIECES = [
    b"",
    b"\0",
    b"\xff",
    b"\r",
    b"\xef\xbb\xbf",
    b"\n",
    b"[",
    b"]",
    b"[[",
    b"{",
    b"}",
    b'"',
    b"'''",
    b"=",
    b".",
    b"#",
]
PIECES += [
    b"nan",
    b"-1",
    b"true",
    b"1e999",
    b"1979-05-27",
    b"[users]\n",
    b"[ceiling]\n",
    b"coop = 2\n",
    b"\x1b[2J",
]
PIECES += [b'"\\u0000"', b"users", b"override", b"env", b"a.b.c", b"9" * 5000, "\u202e".encode(), b"\\"]

VALUES = [
    "1",
    '"x"',
    "[]",
    "[1]",
    '["x"]',
    "{}",
    "{ a = 1 }",
    "true",
    "nan",
    "1979-05-27",
    "[[]]",
    "{ host = 'X' }",
]


def check(project: bytes, user: bytes | None = None) -> None:
    """Read, and hold the outcome to its form: settings that resolve, or printable problems."""
    try:
        found = reading(project, user=user)
    except CoopfileError as error:
        assert error.diagnostics
        assert error.message.replace("\n", "").isprintable() or "\u0301" in error.message
        for shown in to_json(error.diagnostics):
            assert shown["message"] and (shown["line"] is None or shown["column"] >= 1)
        return
    for user_ in (None, *found.users):
        resolve(found.settings(user_))


@given(st.binary(max_size=200))
def test_arbitrary_bytes(text: bytes) -> None:
    """Random bytes."""
    check(text, text)


@given(st.text(alphabet=st.sampled_from("abe.=[]{}\"'#\\\n, 1-:_"), max_size=80))
def test_arbitrary_toml_like_text(text: str) -> None:
    """Random text of TOML's own characters."""
    check(text.encode())


@given(
    st.sampled_from(FILES),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 6), st.sampled_from(PIECES)), max_size=4),
)
def test_damaged_coopfiles(text: bytes, damages: list[tuple[float, int, bytes]]) -> None:
    """Valid files with pieces cut out and put in."""
    for where, cut, piece in damages:
        at = int(where * len(text))
        text = text[:at] + piece + text[at + cut :]
    check(text)
    check(b"", text)


KEYS = st.sampled_from([setting.key for setting in SETTINGS]) | st.sampled_from(
    ["coop", "users", "ceiling", "network", "limits", "x", "network.x", "env.A", "env.'a b'"]
)
PREFIXES = st.sampled_from(
    ["", "", "ceiling.", "[users.override]\n", "[[users]]\n", "[[users]]\nname = 'a'\noverride."]
)


@given(st.lists(st.tuples(PREFIXES, KEYS, st.sampled_from(VALUES)), max_size=5))
def test_wrong_types_at_every_depth(lines: list[tuple[str, str, str]]) -> None:
    """Known keys with values of every type, at the top, in a ceiling and in overrides."""
    text = "\n".join(f"{prefix}{key} = {value}" for prefix, key, value in lines).encode()
    check(text)
    check(b"", text)
