"""``coop mcp``: tools for an agent that speaks the Model Context Protocol, on standard streams."""

from __future__ import annotations

import argparse
import os
import sys

from coopfile.cli.execution import recall
from coopfile.cli.options import RunOptions
from coopfile.errors import UsageError
from coopfile.find import find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from coopfile.find import Project
    from coopfile.plan.model import Plan
    from coopfile.session.session import Session
    from coopfile.tools.confirm import Confirmation
    from coopfile.tools.toolbox import Toolbox

SUMMARY = "serve tools to an agent over MCP: bash and files, in this project's sandbox"
EPILOG = """examples:
  coop mcp                              all tools, sandboxed; for the agent's configuration
  coop mcp -C ~/shop --session agent    in a session that `coop exec agent` finds, too
  coop mcp --as signal:+15555550100     the tools of that user

It is started by the agent (Claude Code, Codex, Gemini CLI, VS Code: docs/mcp.md has the lines), and
speaks on standard input and output. Without --session its session ends with it.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--session", metavar="NAME", help="run commands in the session NAME, which stays")


def main(options: argparse.Namespace) -> int:
    """Serve until the client closes standard input."""
    from coopfile.tools.definitions import definitions
    from coopfile.tools.mcp import Server

    if sys.stdin.isatty():
        raise UsageError(
            "coop mcp speaks to a program, and standard input is a terminal",
            "put it into the agent's configuration: docs/mcp.md",
        )
    if options.session is not None:
        from coopfile.cli.exec import check_name

        check_name(options.session)
    named = {name: getattr(options, name) for name in RunOptions._fields if hasattr(options, name)}
    named.update(assignments=tuple(options.assignments or ()))
    asked = RunOptions(**named)
    project = find(asked.directory, asked.file, os.environ)
    plan = recall(project, asked)
    answers = os.dup(1)
    os.dup2(2, 1)  # what anything prints must not come between messages
    tools = definitions(plan, project.root)
    Server(0, answers, tools, lambda: _toolbox(asked, project, plan)).serve()
    return 0


def _toolbox(asked: RunOptions, project: Project, plan: Plan) -> Toolbox:
    from coopfile.session.session import Session
    from coopfile.tools.definitions import is_sandboxed, names_for
    from coopfile.tools.toolbox import Caller, Toolbox

    place = project.root if asked.file is None else os.path.join(project.root, asked.file)
    session: Session | None = None
    if is_sandboxed(plan) and "bash" in names_for(plan):
        session = Session(plan, name=asked.session, directory=place, audit=False)
    return Toolbox(
        plan,
        project,
        Caller(asked.identity, asked.place),
        None if session is None else lambda: session,
        place=place,
        ask=_refuse,
    )


def _refuse(confirmation: Confirmation) -> object:
    """Refuse what a person is to confirm: this client says of no way to ask one."""
    from coopfile.tools.confirm import not_asked

    raise not_asked("this client has no way to ask its user (elicitation)")
