"""What text Apple's command line takes, and where its parser would take it for something else.

Swift splits text at characters, and those are Unicode's grapheme clusters (UAX #29): a
separator next to what combines with it is no separator, and what it separates is lost
without a message.
"""

from __future__ import annotations

import re
import unicodedata

from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.render.facts import Engine

Argv = tuple[str, ...]

# ManagedContainer.nameValid; one that begins with a dash would be an option.
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,62}", re.ASCII)

# Letters of Grapheme_Cluster_Break=Prepend; the rest of that class is of category Cf.
_PREPENDED = frozenset(
    (0x0D4E, 0x111C2, 0x111C3, 0x113D1, 0x1193F, 0x11941, 0x11A3A, *range(0x11A84, 0x11A8A), 0x11D46, 0x11F02)
)
# What extends the character before and is no mark: vowels of Thai and Lao, sound marks, skin tones.
_EXTENDING = frozenset((0x0E33, 0x0EB3, 0xFF9E, 0xFF9F, *range(0x1F3FB, 0x1F400)))


def argv_of(engine: Engine, *arguments: str) -> Argv:
    """Return an engine's argv. Raises CoopError for what is not UTF-8: Swift would replace it."""
    argv = (engine.program, *arguments)
    for argument in argv:
        if not is_text(argument):
            raise CoopError(
                f"{argument!a} is not text in UTF-8, and Apple's container takes nothing else", "rename it"
            )
        if "\0" in argument:
            raise CoopError(f"{argument!a} has a zero byte, which no argument can have")
    return argv


def is_text(value: str) -> bool:
    """Tell whether a value has no byte that was not UTF-8 (a lone surrogate, PEP 383)."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def identifier(name: str) -> str:
    """Return the name of a container, which is its id, if it is one."""
    if not _NAME.fullmatch(name):
        raise CoopError(f"{name!a} is not a name that Apple's container takes")
    return name


def image_name(reference: str) -> str:
    """Return the name of an image if it is not an option."""
    if not reference or reference.startswith("-"):
        raise CoopError(f"{reference!a} is not the name of an image")
    return reference


def ends_alone(value: str) -> bool:
    """Tell whether a separator behind a value stays a character of its own (UAX #29, GB9b)."""
    last = value[-1]
    return unicodedata.category(last) != "Cf" and ord(last) not in _PREPENDED


def begins_alone(value: str) -> bool:
    """Tell whether a separator before a value stays a character of its own (UAX #29, GB9 and GB9a)."""
    if not value or value[0].isascii():
        return True
    first = value[0]
    return unicodedata.category(first)[0] not in "MC" and ord(first) not in _EXTENDING


def fits_field(path: str) -> bool:
    """Tell whether a path can be a field of ``--mount``, which nothing quotes."""
    return not any(character in path for character in ",=") and ends_alone(path)


def unspeakable(path: str) -> CoopError:
    """Return the error for a path that no form of an option can hold."""
    return CoopError(
        f"Apple's container cannot be told of {path!a}: its characters separate the parts of an option",
        "rename it, without any of : , =",
    )
