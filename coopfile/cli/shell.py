"""``coop shell``: a shell in a session, which is started if need be."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import attached
from coopfile.cli.exec import add_start, below, check_name, pairs
from coopfile.cli.sessions import SHELL, exec_options, shell_in
from coopfile.find import find
from coopfile.plan.sessions import DEFAULT
from coopfile.session.model import Command

SUMMARY = "open a shell in a session, which is started if need be"
EPILOG = """examples:
  coop shell                  in the session "default"
  coop shell work             in another one; coop ls tells which there are
  coop shell work --ttl 2h    if it is not running yet: until nobody has used it for two hours

Several shells and commands may be in one session. It stays when they are gone: coop stop ends it.
The exit status is the shell's own.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("name", metavar="NAME", nargs="?", default=DEFAULT, help="the session's name")
    parser.add_argument(
        "--ttl", metavar="TIME", help="end a session that is started after so much time without a command"
    )
    add_start(parser)


def main(options: argparse.Namespace) -> int:
    """Run the shell, on the caller's terminal if there is one."""
    asked = exec_options(options)
    check_name(asked.name)
    project = find(asked.directory, asked.file, os.environ)
    terminal = attached.terminal() if attached.has_terminal((0, 1)) else None
    shell = Command(SHELL, pairs(asked.variables), below(project, asked.inside), terminal=terminal)
    return shell_in(asked, project, shell)
