"""``coop run``: run a command, the agent, or a shell in the sandbox that the plan describes."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

SUMMARY = "run a command in the sandbox: one given after --, else the agent, else a shell"
EPILOG = """examples:
  coop run -- make test
  coop run --timeout 10m -- pytest -q
  coop run --set network.mode=host -- curl https://example.org
  coop run --as signal:+15555550100 -- ls      with what that user may have
  coop run --session work -- make test         in a sandbox that stays, for the next command
  coop run                                     agent.command, or a shell

The exit status is the command's own; 124: the time ran out; 125: coop could not run it;
126 and 127: the command could not be executed, or was not found.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    import argparse

    parser.add_argument(
        "--timeout", metavar="TIME", help="end the command after this time, such as 90s or 10m"
    )
    parser.add_argument(
        "--session", metavar="NAME", help="run it in the session NAME, which is started if need be"
    )
    parser.add_argument(
        "--ttl", metavar="TIME", help="end a session that is started after so much time without a command"
    )
    parser.add_argument(
        "--no-publish",
        dest="publish",
        action="store_false",
        help="publish no ports, such as beside another run that has them",
    )
    parser.add_argument(
        "--plan",
        metavar="JSON",
        help="run under this plan, as `coop plan --json` prints it, not the project's",
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="[--] COMMAND", help="a program and its arguments"
    )


def main(options: argparse.Namespace) -> int:
    """Run what argparse understood."""
    from coopfile.cli.execution import execute
    from coopfile.cli.options import RunOptions

    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    named = {name: getattr(options, name) for name in RunOptions._fields if hasattr(options, name)}
    named.update(command=tuple(command), assignments=tuple(options.assignments or ()))
    return execute(RunOptions(**named))
