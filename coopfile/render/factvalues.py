"""The values that facts are made of, each checked by itself."""

from __future__ import annotations

from coopfile.language.diagnostics import quoted
from coopfile.language.suggest import did_you_mean
from coopfile.render.facts import LIMITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LONGEST = 4096  # bytes of a path: PATH_MAX
_LAST_PORT = 65535
_LARGEST_TEXT = 1 << 20  # bytes of another text
_LARGEST_ID = (1 << 32) - 2  # (uid_t) -1 means none


class BadFactError(Exception):
    """What is wrong with one value, in words."""


def anything(data: object) -> object:
    """Return any value as it is."""
    return data


def choice(values: Sequence[str]) -> Callable[[object], str]:
    """Return a check for one of these texts."""

    def check(data: object) -> str:
        if not isinstance(data, str) or data not in values:
            guess = did_you_mean(data, values) if isinstance(data, str) else None
            raise BadFactError(
                f"{quoted(data)} is none of {', '.join(values)}" + (f"; {guess}" if guess else "")
            )
        return data

    return check


def boolean(data: object) -> bool:
    """Return true or false."""
    if not isinstance(data, bool):
        raise BadFactError(f"{quoted(data)} is neither true nor false")
    return data


def whole(data: object) -> int:
    """Return a whole number from 0 up."""
    if isinstance(data, bool) or not isinstance(data, int) or not 0 <= data < 1 << 63:
        raise BadFactError(f"{quoted(data)} is not a whole number from 0 up")
    return data


def identifier(data: object) -> int:
    """Return the number of an account or a group."""
    number = whole(data)
    if number > _LARGEST_ID:
        raise BadFactError(f"{number} is not the number of an account")
    return number


def content(data: object) -> str:
    """Return a text that may have lines."""
    if not isinstance(data, str):
        raise BadFactError(f"{quoted(data)} is not a text")
    if "\0" in data:
        raise BadFactError("the text has a NUL character")
    try:
        data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadFactError(f"{quoted(data)} has half of a surrogate pair") from None
    if len(data) > _LARGEST_TEXT:
        raise BadFactError(f"the text is longer than {_LARGEST_TEXT:,} characters")
    return data


def text_or_empty(data: object) -> str:
    """Return a text without control characters."""
    found = content(data)
    if any(character < " " or character == "\x7f" for character in found):
        raise BadFactError(f"{quoted(found)} has a control character")
    return found


def text(data: object) -> str:
    """Return a text of one character or more, none a control character."""
    found = text_or_empty(data)
    if not found:
        raise BadFactError("it is empty")
    return found


def program_or_none(data: object) -> str | None:
    """Return the name of a program, or None."""
    return None if data is None else program(data)


def program(data: object) -> str:
    """Return what a program can be called by."""
    found = text(data)
    if found.startswith("-") or "=" in found:
        raise BadFactError(f"{quoted(found)} is not the name of a program")
    return found


def texts(data: object) -> tuple[str, ...]:
    """Return a list of texts."""
    if not isinstance(data, list):
        raise BadFactError(f"{quoted(data)} is not a list")
    return tuple(text(item) for item in data)


def limits(data: object) -> tuple[str, ...]:
    """Return names of limits."""
    check = choice(LIMITS)
    if not isinstance(data, list):
        raise BadFactError(f"{quoted(data)} is not a list")
    return tuple(check(item) for item in data)


def path_text(data: object) -> str:
    """Return a text that is not too long for a path."""
    found = text(data)
    if len(found.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise BadFactError(f"the path is longer than {_LONGEST:,} bytes")
    return found


def absolute(data: object) -> str:
    """Return an absolute path in its shortest form."""
    found = path_text(data)
    if not found.startswith("/"):
        raise BadFactError(f"{quoted(found)} is a relative path")
    if found != "/" and any(name in ("", ".", "..") for name in found[1:].split("/")):
        raise BadFactError(
            f'{quoted(found)} is not in its shortest form: without "//", ".", ".." and a last "/"'
        )
    return found


def absolute_or_none(data: object) -> str | None:
    """Return an absolute path, or None."""
    return None if data is None else absolute(data)


def port_or_none(data: object) -> int | None:
    """Return the number of a port, or None."""
    if data is None:
        return None
    if not isinstance(data, int) or isinstance(data, bool) or not 0 < data <= _LAST_PORT:
        raise BadFactError(f"{quoted(data)} is not a port")
    return data


def environment(data: object) -> dict[str, str]:
    """Return an environment; a variable that is set but whose value is not told (null) is empty."""
    if not isinstance(data, dict):
        raise BadFactError(f"{quoted(data)} is not an object")
    found = {}
    for name, value in data.items():
        if not name or "=" in name or not name.isprintable():
            raise BadFactError(f"{quoted(name)} is not the name of a variable")
        try:
            # null: it is set, and its value is not told. The host's value is taken at the run.
            found[name] = "" if value is None else content(value)
        except BadFactError as bad:
            raise BadFactError(f"{name}: {bad}") from None
    return found
