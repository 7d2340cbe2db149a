"""The texts that settings are read from, and the order in which they count."""

from __future__ import annotations

import codecs

from coopfile.language.diagnostics import WHOLE, Diagnostic, Position
from coopfile.record import Record

# Later wins. "override" is the matched user's; it stands in one of the files.
LAYERS = ("default", "user", "project", "local", "override", "environment", "command line")

MAX_BYTES = 1024 * 1024

_BOMS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


class Source(Record):
    """One text of one layer; ``name`` is what diagnostics show, such as ``Coopfile``."""

    layer: str
    name: str
    text: bytes


def decode(source: Source) -> tuple[str | None, list[Diagnostic]]:
    """Return the source's text with line feeds only, and what is wrong with its bytes.

    The text is None when nothing more can be said about it.
    """
    raw = source.text
    whole = Position(source.name, *WHOLE)
    if len(raw) > MAX_BYTES:
        message = f"the file is {len(raw):,} bytes long; the most is {MAX_BYTES:,}"
        return None, [Diagnostic("error", "too-long", message, None, whole)]
    found = []
    for mark, encoding in _BOMS.items():
        if raw.startswith(mark):
            message = f"the file is {encoding} text; a Coopfile is UTF-8"
            return None, [Diagnostic("error", "not-utf-8", message, "save it as UTF-8", whole)]
    if raw.startswith(codecs.BOM_UTF8):
        raw = raw[len(codecs.BOM_UTF8) :]
        message = "the file begins with a byte order mark (BOM), which TOML does not allow"
        found = [Diagnostic("error", "bom", message, 'save it as "UTF-8 without BOM"', whole)]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return None, [*found, _not_utf8(source, raw, error)]
    return text.replace("\r\n", "\n"), found


def _not_utf8(source: Source, raw: bytes, error: UnicodeDecodeError) -> Diagnostic:
    before = raw[: error.start].decode("utf-8").replace("\r\n", "\n")
    line = before.count("\n") + 1
    start = before.rfind("\n") + 1
    end = raw.find(b"\n", error.start)
    rest = raw[error.start : end if end >= 0 else len(raw)].decode("utf-8", "surrogateescape")
    position = Position(source.name, line, len(before) - start + 1, 1)
    message = f"the byte 0x{raw[error.start]:02x} is not UTF-8 ({error.reason})"
    return Diagnostic(
        "error", "not-utf-8", message, "save the file as UTF-8", position, before[start:] + rest.rstrip("\r")
    )
