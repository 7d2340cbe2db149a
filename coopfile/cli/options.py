"""The command line's options, and the short way through them for a plain ``coop run``.

argparse is the authority; it costs 5 ms to import. ``quick_run`` understands what a
``coop run`` usually looks like and gives up (None) on anything else, so that argparse
decides. A test holds the two to the same answers.
"""

from __future__ import annotations

from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from typing import Any

    from coopfile.compiling import Request

PLACES = ("direct", "group")


class RunOptions(Record):
    """What ``coop run`` was asked.

    ``timeout`` is as written; ``plan`` is a plan's JSON, to be used instead of the
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
    quiet: int = 0
    verbose: int = 0
    json: bool = False
    color: str = "auto"

    @property
    def compile_options(self) -> tuple[object, ...]:
        """What a plan depends on, for the cache's key."""
        return (self.file, self.identity, self.place, self.assignments, self.plan)


_WITH_VALUE = {
    "-C": "directory",
    "--directory": "directory",
    "-f": "file",
    "--file": "file",
    "--as": "identity",
    "--timeout": "timeout",
    "--plan": "plan",
}


def quick_run(argv: Sequence[str]) -> RunOptions | None:
    """Parse the arguments after ``run`` if they are of the plainest form, else None."""
    named: dict[str, Any] = {}
    assignments: list[str] = []
    quiet = verbose = 0
    position = 0
    while position < len(argv):
        word = argv[position]
        if word == "--":
            position += 1
            break
        if not word.startswith("-"):
            break
        if word == "-q":
            quiet += 1
        elif word == "-v":
            verbose += 1
        elif word in _WITH_VALUE or word == "--set":
            position += 1
            if position == len(argv) or argv[position].startswith("-"):
                return None
            if word == "--set":
                assignments.append(argv[position])
            else:
                named[_WITH_VALUE[word]] = argv[position]
        else:
            return None
        position += 1
    return RunOptions(
        command=tuple(argv[position:]),
        assignments=tuple(assignments),
        quiet=quiet,
        verbose=verbose,
        **named,
    )


def add_common(parser: argparse.ArgumentParser, *, defaults: bool) -> None:
    """Add the options that every verb takes, before the verb (with defaults) and after it."""
    import argparse

    def default(value: object) -> object:
        return value if defaults else argparse.SUPPRESS

    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "-C", "--directory", metavar="DIR", default=default("."), help="act as if started in DIR"
    )
    group.add_argument("-f", "--file", metavar="FILE", default=default(None), help="use FILE as the Coopfile")
    group.add_argument(
        "--as", dest="identity", metavar="IDENTITY", default=default(None), help="who asks: channel:sender"
    )
    group.add_argument(
        "--place",
        choices=PLACES,
        default=default("direct"),
        help="where they ask: a group lowers their trust",
    )
    group.add_argument(
        "--set",
        dest="assignments",
        metavar="KEY=VALUE",
        action="append",
        default=default(None),
        help="set a value over every Coopfile, such as network.mode=none",
    )
    group.add_argument("--json", action="store_true", default=default(False), help="print JSON")
    group.add_argument("-q", "--quiet", action="count", default=default(0), help="print less")
    group.add_argument("-v", "--verbose", action="count", default=default(0), help="print more")
    group.add_argument(
        "--color", choices=("auto", "always", "never"), default=default("auto"), help="colours"
    )


def request(options: argparse.Namespace | RunOptions) -> Request:
    """Return what is to be compiled."""
    from coopfile.compiling import Request

    return Request(
        directory=options.directory,
        file=options.file,
        identity=options.identity,
        place=options.place,
        assignments=tuple(options.assignments or ()),
    )
