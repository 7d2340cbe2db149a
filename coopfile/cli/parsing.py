"""The whole command line by argparse: which verbs there are, and what all of them take.

What is started often goes a shorter way: ``options.quick_run``, ``options.quick_exec``.
"""

from __future__ import annotations

import argparse
import importlib
import sys

from coopfile import __version__
from coopfile.cli.options import PLACES
from coopfile.errors import CoopError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

VERBS = (
    "init",
    "rebuild",
    "run",
    "shell",
    "exec",
    "ls",
    "stop",
    "diff",
    "commit",
    "reset",
    "plan",
    "check",
    "why",
    "log",
    "allow",
    "status",
    "render",
    "proxy",
    "lock",
    "rm",
    "clean",
    "schema",
    "mcp",
    "completion",
)

# What works on every system, and what on all but Windows: the rest runs something, or keeps it.
_ANYWHERE = ("init", "plan", "check", "why", "allow", "status", "render", "schema", "completion")
_UNIX = ("lock", "log", "proxy")

_ABOUT = "Run AI agents and any other untrusted command in the sandbox that a Coopfile describes."
_ELSEWHERE = " On this system it checks and renders what that says; what runs something needs Linux."
_EPILOG = """examples:
  coop init                        write a Coopfile for the project in this directory, or build on its image
  coop plan                        show what the sandbox may have
  coop run -- make test            run a command in it
  coop run                         run the agent, or a shell
  coop shell                       a shell in a sandbox that stays
  coop status                      what this machine can enforce

`coop COMMAND --help` tells more.
"""


def verbs_here() -> tuple[str, ...]:
    """Return the verbs that work on this system; not all others can even be imported there."""
    if sys.platform == "linux":
        return VERBS
    unix = () if sys.platform == "win32" else _UNIX
    return tuple(verb for verb in VERBS if verb in _ANYWHERE or verb in unix)


def refuse_elsewhere(verb: str) -> None:
    """Refuse a verb that does not work on this system. Raises CoopError."""
    if verb in VERBS and verb not in verbs_here():
        where = "Linux or macOS" if verb in _UNIX else "Linux"
        raise CoopError(
            f"coop {verb} needs {where}",
            "coop render prints what can be run here: docs/backends.md, Other machines",
        )


def run(arguments: list[str]) -> int:
    """Run a command line; return its exit status. Raises CoopError, SystemExit."""
    first = arguments[:1]
    options = _parsed(parser(first if first and first[0] in VERBS else None), arguments)
    if options.verb is None:
        raise UsageError("no command given", f"one of: {', '.join(verbs_here())}; coop --help tells more")
    status = importlib.import_module(f"coopfile.cli.{options.verb}").main(options)
    assert isinstance(options, argparse.Namespace)
    return int(status)


def _parsed(known: argparse.ArgumentParser, arguments: list[str]) -> argparse.Namespace:
    """Parse a command line. Of one of ``coop exec`` argparse does not see what begins with ``--``.

    It would lose the ``--`` that stands behind a name, in a way that depends on Python's version.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "exec" in arguments[:end]:
        options = known.parse_args(arguments[:end])
        if options.verb == "exec":
            options.after = arguments[end:]
            return options
    return known.parse_args(arguments)


def parser(names: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, or of some verbs alone: each costs its imports."""
    top = argparse.ArgumentParser(
        prog="coop",
        description=_ABOUT if sys.platform == "linux" else _ABOUT + _ELSEWHERE,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"coop {__version__}")
    add_common(top, defaults=True)
    verbs = top.add_subparsers(dest="verb", metavar="COMMAND", title="commands", action=_verbs())
    for name in verbs_here() if names is None else names:
        module = importlib.import_module(f"coopfile.cli.{name}")
        verb = verbs.add_parser(
            name,
            help=module.SUMMARY,
            description=module.SUMMARY[0].upper() + module.SUMMARY[1:] + ".",
            epilog=module.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_common(verb, defaults=False)
        module.arguments(verb)
    return top


def _verbs() -> type[argparse.Action]:
    """Return what parses a verb's arguments on top of those before it.

    argparse's own parses them apart and then takes theirs: of ``--set`` before and after the verb
    it would lose the first, and with it what that forbade.
    """

    class Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
        def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
            name, *rest = values
            setattr(namespace, self.dest, name)
            self.choices[name].parse_args(rest, namespace)

    return Verbs


def add_common(parser: argparse.ArgumentParser, *, defaults: bool) -> None:
    """Add the options that every verb takes, before the verb (with defaults) and after it."""

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
