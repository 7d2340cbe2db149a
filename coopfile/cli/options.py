"""The command line's options, and the short way through them for plain ``coop run`` and ``coop exec``.

argparse is the authority; it costs 5 ms to import. ``quick_run`` and ``quick_exec`` understand
what a command line usually looks like and give up (None) on anything else, so that argparse
decides. A test holds the two to the same answers.
"""

from __future__ import annotations

from coopfile.errors import UsageError
from coopfile.plan.sessions import DEFAULT
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from coopfile.compiling import Request

PLACES = ("direct", "group")

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}  # milliseconds


class CommandOptions(Record):
    """What every verb was asked that runs a command.

    ``timeout`` and ``ttl`` are as written; ``plan`` is a plan's JSON, to be used instead of the
    project's; ``quiet`` and ``verbose`` are counts.
    """

    command: tuple[str, ...] = ()
    directory: str = "."
    file: str | None = None
    identity: str | None = None
    place: str = "direct"
    assignments: tuple[str, ...] = ()
    timeout: str | None = None
    plan: str | None = None
    ttl: str | None = None
    quiet: int = 0
    verbose: int = 0
    json: bool = False
    color: str = "auto"

    @property
    def compile_options(self) -> tuple[object, ...]:
        """What a plan depends on, for the cache's key."""
        return (self.file, self.identity, self.place, self.assignments, self.plan)


class RunOptions(CommandOptions):
    """What ``coop run`` was asked.

    ``session`` is the name of one to run in; ``publish`` tells whether ports are published.
    """

    session: str | None = None
    publish: bool = True


class ExecOptions(CommandOptions):
    """What ``coop exec`` and ``coop shell`` were asked.

    ``name`` is the session's. ``inside`` is the directory to start in and ``variables`` are as written:
    ``NAME=VALUE``. ``terminal`` says whether one may be used.
    """

    name: str = DEFAULT
    inside: str | None = None
    variables: tuple[str, ...] = ()
    terminal: bool = True


_COMMON = {"-C": "directory", "--directory": "directory", "-f": "file", "--file": "file", "--as": "identity"}
_COUNTED = {"-q": "quiet", "-v": "verbose"}
_OF_RUN = {
    **_COMMON,
    "--timeout": "timeout",
    "--plan": "plan",
    "--session": "session",
    "--ttl": "ttl",
    "--set": "assignments",
}
_OF_EXEC = {
    **_COMMON,
    "--timeout": "timeout",
    "-w": "inside",
    "--dir": "inside",
    "--env": "variables",
    "--set": "assignments",
}
_BEFORE = {**_COMMON, "--set": "assignments"}
_TAKING = {*_OF_RUN, *_OF_EXEC, "--place", "--color"}
_BEFORE_COMMAND = {"run": 2, "exec": 3}  # which word without a dash begins the command
_REPEATED = ("assignments", "variables")


def verb_first(argv: Sequence[str]) -> list[str]:
    """Return a command line with the plain options that stand before its verb moved behind that.

    They mean the same there, and only the verb's own part of the command line is then loaded.
    """
    end = _options(argv, 0, _BEFORE, {})
    if not end or end == len(argv) or argv[end] == "--":
        return list(argv)
    return [argv[end], *argv[:end], *argv[end + 1 :]]


def asks_for_json(argv: Sequence[str]) -> bool:
    """Tell whether ``--json`` is among coop's own options: what a command is given is not for coop."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    words: list[str] = []
    taken = False  # as the value of the option before it
    for word in own:
        if taken:
            taken = False
        elif word == "--json":
            return True
        elif word.startswith("-"):
            taken = word in _TAKING
        else:
            words.append(word)
            if len(words) == _BEFORE_COMMAND.get(words[0]):
                return False
    return False


def quick_run(argv: Sequence[str]) -> RunOptions | None:
    """Parse the arguments after ``run`` if they are of the plainest form, else None."""
    named: dict[str, Any] = {}
    position = _options(argv, 0, _OF_RUN, named)
    if position is None:
        return None
    return RunOptions(command=_command(argv, position), **named)


def quick_exec(argv: Sequence[str]) -> ExecOptions | None:
    """Parse the arguments after ``exec`` if they are of the plainest form, else None."""
    named: dict[str, Any] = {}
    position = _options(argv, 0, _OF_EXEC, named)
    if position is None or position == len(argv) or argv[position] == "--":
        return None
    name = argv[position]
    position = _options(argv, position + 1, _OF_EXEC, named)
    if position is None:
        return None
    return ExecOptions(_command(argv, position), name=name, **named)


def _options(argv: Sequence[str], position: int, known: dict[str, str], named: dict[str, Any]) -> int | None:
    """Take in the options from a position on; return where they end, None for what is not plain."""
    while position < len(argv):
        word = argv[position]
        if word == "--" or not word.startswith("-"):
            break
        if word in _COUNTED:
            named[_COUNTED[word]] = named.get(_COUNTED[word], 0) + 1
        elif word in ("-T", "--no-terminal") and known is _OF_EXEC:
            named["terminal"] = False
        elif word in known:
            position += 1
            if position == len(argv) or argv[position].startswith("-"):
                return None
            field = known[word]
            value = argv[position]
            named[field] = (*named.get(field, ()), value) if field in _REPEATED else value
        else:
            return None
        position += 1
    return position


def _command(argv: Sequence[str], position: int) -> tuple[str, ...]:
    return tuple(argv[position + 1 if argv[position : position + 1] == ["--"] else position :])


def seconds(option: str, text: str) -> float:
    """Return a time of the command line; the usual ones without the language. Raises UsageError."""
    number = text.rstrip("hms")
    factor = _UNITS.get(text[len(number) :])
    if factor is not None and number.isascii() and number.isdigit() and len(number) < 5:
        found = int(number) * factor
        if 0 < found <= _UNITS["h"]:
            return found / 1000
    from coopfile.language.values import BadValue, Duration

    try:
        return int(Duration().parse(text)) / 1000
    except BadValue as error:
        raise UsageError(f"{option}: {error.message}", error.help) from None


def request(options: argparse.Namespace | CommandOptions) -> Request:
    """Return what is to be compiled."""
    from coopfile.compiling import Request

    return Request(
        directory=options.directory,
        file=options.file,
        identity=options.identity,
        place=options.place,
        assignments=tuple(options.assignments or ()),
    )
