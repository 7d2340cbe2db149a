"""What the verbs print is safe for terminals and fits the stream."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from coopfile.cli import output

ROOT = Path(output.__file__).parent.parent.parent


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, naïve café, 日本", "plain text, naïve café, 日本"),
        ("\x1b[2J", r"\x1b[2J"),
        ("a\nb\tc\r", r"a\nb\tc\r"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\x9b31m", r"\x9b31m"),
        ("\udcff", r"\xff"),
        ("zero\u200bwidth", r"zero\u200bwidth"),
    ],
)
def test_safe_escapes_what_a_terminal_acts_on(text: str, shown: str) -> None:
    """Control characters, direction marks and lone surrogates are shown, not sent."""
    assert output.safe(text) == shown


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say yes."""
        return True


def test_color_follows_terminal_and_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours are for terminals, unless NO_COLOR or a dumb terminal says otherwise; --color overrides."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert output.wants_color("auto", Terminal())
    assert not output.wants_color(None, io.StringIO())
    assert output.wants_color("always", io.StringIO())
    assert not output.wants_color("never", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    assert not output.wants_color("auto", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not output.wants_color("auto", Terminal())


def test_paint_only_when_enabled() -> None:
    """A style wraps the text in its escape sequence, or leaves it alone."""
    assert output.paint("x", "red") == "\x1b[31mx\x1b[0m"
    assert output.paint("x", "red", False) == "x"


def test_emit_survives_a_narrow_encoding() -> None:
    """A check mark goes to an ASCII stream escaped rather than as a UnicodeEncodeError."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    output.emit("ok ✓", stream)
    stream.flush()
    assert raw.getvalue() == b"ok \\u2713\n"


def test_emit_json_is_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON output parses back and needs no particular locale."""
    output.emit_json({"name": "café", "n": 1})
    text = capsys.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {"name": "café", "n": 1}


@pytest.mark.parametrize("verb", [["schema"], ["stop", "--json", "no/name"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk(tmp_path: Path, verb: list[str], unbuffered: str) -> None:
    """Output that cannot be written is an error in words, also when what is written is an error."""
    program = "from coopfile.startup import entry; entry()"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, *verb],
            env={"HOME": str(tmp_path), "PYTHONUNBUFFERED": unbuffered, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode in (2, 125)
    assert done.stderr.startswith("coop: error: ") and "Traceback" not in done.stderr


@pytest.mark.parametrize("verb", [["mcp"], ["plan"]])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(tmp_path: Path, verb: list[str], closed: str) -> None:
    """Streams that the caller has closed are as if they led to /dev/null."""
    program = "from coopfile.startup import entry; entry()"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", program, *verb],
        env={"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
