"""``coop why``: whether the sandbox may do something, by which rule, and what would change that."""

from __future__ import annotations

import argparse
import os
import sys

from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.find import real_home

SUMMARY = "say whether the sandbox may do something, why, and what would change that"
EPILOG = """examples:
  coop why read ~/.ssh/id_ed25519
  coop why write .git/hooks/pre-commit
  coop why connect pypi.org:443
  coop why env AWS_SECRET_ACCESS_KEY
  coop why exec make
  coop why syscall ptrace

Paths are those of the host; a relative one is below the workspace. The exit status is 0 for
what is allowed and 1 for what is denied.
"""

ACTIONS = ("read", "write", "exec", "connect", "env", "syscall")


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's arguments."""
    parser.add_argument("action", choices=ACTIONS, help="what is tried: %(choices)s")
    parser.add_argument("target", help="a path, a program, HOST:PORT, a variable, or a call")


def main(options: argparse.Namespace) -> int:
    """Compile, ask, and print the verdict."""
    from coopfile.compiling import compile_project
    from coopfile.plan.explain import Action, Verdict, explain

    compiled = compile_project(request(options))
    if options.action == "syscall":
        from coopfile.native.filtered import explain_call

        verdict = explain_call(compiled.plan, options.target)
    else:
        verdict = explain(
            compiled.plan,
            Action(options.action, options.target),
            home=real_home(os.environ),
            workspace=compiled.project.root,
            settings=compiled.settings,
        )
    if options.json:
        output.emit_json({name: getattr(verdict, name) for name in Verdict._fields})
        return 0 if verdict.allowed else 1
    color = output.wants_color(options.color, sys.stdout)
    word, style = ("allowed", "green") if verdict.allowed else ("denied", "red")
    rule = verdict.key if verdict.origin is None else f"{verdict.key}, {verdict.origin}"
    output.emit(f"{output.paint(word, style, color)} ({output.safe(rule)}): {output.safe(verdict.reason)}")
    if verdict.remedy:
        output.emit(f"  to change that: {output.safe(verdict.remedy)}")
    return 0 if verdict.allowed else 1
