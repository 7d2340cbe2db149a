"""The command ``coop``: finds the verb, and turns errors into words and an exit status."""

from __future__ import annotations

import os
import sys

from coopfile import startup
from coopfile.cli.options import quick_exec, quick_run, verb_first
from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# `coop sandbox VERB` is another name of these.
_OF_SANDBOX = ("status", "reset", "clean")


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
        _drop_output()  # whoever read it has gone
        return 141
    except Exception:
        import traceback

        text = "coop: this is a bug in coop: please report it with the lines above\n"
        startup.tell(f"{traceback.format_exc()}{text}")
        return 125


def _drop_output() -> None:
    """Let what is buffered not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _open_streams() -> None:
    """Give the streams that the caller closed to /dev/null: there may be something to tell, or to ask."""
    from coopfile.native import streams

    streams.ensure()
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _dispatch(arguments: list[str]) -> int:
    if arguments and arguments[0].startswith("-"):
        arguments = verb_first(arguments)
    if arguments[:1] == ["sandbox"]:
        following = verb_first(arguments[1:])
        if following and following[0] in _OF_SANDBOX:
            arguments = following
    if sys.platform != "linux" and arguments:
        from coopfile.cli import parsing

        parsing.refuse_elsewhere(arguments[0])
    if arguments[:1] == ["run"]:
        quick = quick_run(arguments[1:])
        if quick is not None:
            from coopfile.cli.execution import execute

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
    from coopfile.cli import parsing

    return parsing.run(arguments)


def _tell(error: CoopError, arguments: Sequence[str]) -> None:
    from coopfile.cli.failures import tell
    from coopfile.cli.options import asks_for_json
    from coopfile.cli.output import OutputError

    as_json = asks_for_json(arguments) and not isinstance(error, OutputError)
    try:
        tell(error, as_json=as_json)
    except OutputError:
        _drop_output()
        if as_json:
            _tell(error, ())  # words have another stream
    if isinstance(error, OutputError):
        _drop_output()
