"""What the verbs print: plain text made safe for terminals, colours where wanted, JSON."""

from __future__ import annotations

import os
import sys

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class OutputError(CoopError):
    """What is printed cannot be written, such as to a full disk."""


def wants_color(choice: str | None, stream: TextIO) -> bool:
    """Tell whether to colour what goes to ``stream``.

    ``choice`` is the value of ``--color``: always, never, or auto (also None), where
    the rules of no-color.org and a terminal at the other end decide.
    """
    if choice in ("always", "never"):
        return choice == "always"
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def paint(text: str, style: str, enabled: bool = True) -> str:
    """Return ``text`` in a style (bold, dim, red, green, yellow, cyan), or as it is."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if enabled else text


def safe(text: str) -> str:
    r"""Escape what a terminal would act on or not show, such as ESC, as ``\x1b``.

    Texts of a Coopfile come from strangers: printed as they are they could move the
    cursor, recolour what follows, or turn the direction of writing.
    """
    if text.isprintable():
        return text
    from coopfile.language.diagnostics import visible

    return visible(text)


def emit(text: str, stream: TextIO | None = None) -> None:
    """Write lines of text; characters that the stream's encoding lacks come out escaped.

    Raises OutputError, and BrokenPipeError where nobody reads it any more.
    """
    stream = sys.stdout if stream is None else stream
    line = text if text.endswith("\n") or not text else text + "\n"
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output cannot be written: {error.strerror}") from None


def emit_json(data: Any) -> None:
    """Write data as indented JSON, pure ASCII, so that any reader and any locale can take it."""
    import json

    emit(json.dumps(data, indent=2))
