"""The command ``coop``: finds the verb, and turns errors into words and an exit status."""

from __future__ import annotations

import os
import sys

from coopfile.cli.options import add_common, quick_exec, quick_run, verb_first
from coopfile.errors import CoopError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
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

# `coop sandbox VERB` is another name of these.
_OF_SANDBOX = ("status", "reset", "clean")

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_streams()
    try:
        return _dispatch(arguments)
    except CoopError as error:
        _tell(error, arguments)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; what is buffered must not complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except Exception:
        import traceback

        traceback.print_exc()
        sys.stderr.write("coop: this is a bug in coop: please report it with the lines above\n")
        return 125


def _open_streams() -> None:
    """Give the streams that the caller closed to /dev/null: there may be something to tell."""
    from coopfile.native import streams

    streams.ensure()
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0].startswith("-"):
        arguments = verb_first(arguments)
    if arguments[:1] == ["sandbox"]:
        following = verb_first(arguments[1:])
        if following and following[0] in _OF_SANDBOX:
            arguments = following
    if sys.platform != "linux" and arguments and arguments[0] in VERBS:
        _refuse_elsewhere(arguments[0])
    if arguments[:1] == ["run"]:
        quick = quick_run(arguments[1:])
        if quick is not None:
            from coopfile.cli.run import execute

            return execute(quick)
    if arguments[:1] == ["exec"]:
        asked = quick_exec(arguments[1:])
        if asked is not None:
            from coopfile.cli import exec as verb

            return verb.execute(asked)
    if arguments[:1] == ["init"] and sys.platform == "linux":
        from coopfile.cli.ready import tell_ready

        quick = quick_run(arguments[1:])
        if quick is not None and tell_ready(quick):
            return 0
    return _with_argparse(arguments)


def verbs_here() -> tuple[str, ...]:
    """Return the verbs that work on this system; not all others can even be imported there."""
    if sys.platform == "linux":
        return VERBS
    unix = () if sys.platform == "win32" else _UNIX
    return tuple(verb for verb in VERBS if verb in _ANYWHERE or verb in unix)


def _refuse_elsewhere(verb: str) -> None:
    if verb not in verbs_here():
        where = "Linux or macOS" if verb in _UNIX else "Linux"
        raise CoopError(
            f"coop {verb} needs {where}",
            "coop render prints what can be run here: docs/backends.md, Other machines",
        )


def _with_argparse(arguments: list[str]) -> int:
    import argparse
    import importlib

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
    import argparse
    import importlib

    from coopfile import __version__

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
    import argparse

    class Verbs(argparse._SubParsersAction):  # type: ignore[type-arg]
        def __call__(self, parser, namespace, values, option_string=None):  # type: ignore[no-untyped-def]
            name, *rest = values
            setattr(namespace, self.dest, name)
            self.choices[name].parse_args(rest, namespace)

    return Verbs


def _tell(error: CoopError, arguments: Sequence[str]) -> None:
    from coopfile.cli.failures import tell

    tell(error, as_json="--json" in arguments)
