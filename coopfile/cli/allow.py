"""``coop allow``: approve what a project's Coopfile gives beyond the defaults."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.find import approvals

SUMMARY = "approve what this project's Coopfile gives the sandbox beyond the defaults"
EPILOG = """examples:
  coop allow                 show what the Coopfile widens, and approve it
  coop allow --show          show it only
  coop allow --list          every project that was approved
  coop allow --revoke        ask again from now on

An approval is of the content: an edit of the Coopfile that widens more needs a new one.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    view = parser.add_mutually_exclusive_group()
    view.add_argument(
        "--show", action="store_true", help="show what is not approved yet; 1 if there is anything"
    )
    view.add_argument("--list", action="store_true", help="show every approved project")
    view.add_argument("--revoke", action="store_true", help="forget this project's approval")


def main(options: argparse.Namespace) -> int:
    """Show, approve, list or revoke."""
    from coopfile.access import approval
    from coopfile.compiling import compile_project

    directory = approvals(os.environ)
    if options.list:
        _list(directory, as_json=options.json)
        return 0
    compiled = compile_project(request(options).replace(locked=False))
    if options.revoke:
        gone = approval.revoke(compiled, directory)
        if options.json:
            output.emit_json({"revoked": gone})
        elif not options.quiet:
            output.emit("revoked" if gone else "there was no approval")
        return 0
    changes = approval.unapproved(compiled, directory)
    if options.json:
        output.emit_json([change.describe() for change in changes])
    elif changes:
        output.emit("\n".join(map(output.safe, approval.describe(compiled, changes))))
    if options.show:
        return 1 if changes else 0
    if changes:
        approval.approve(compiled, directory)
    if not options.quiet and not options.json:
        output.emit("approved" if changes else "nothing to approve")
    return 0


def _list(directory: str, *, as_json: bool) -> None:
    from coopfile.access import approval
    from coopfile.plan import canonical

    found = approval.every(directory)
    if as_json:
        output.emit_json([{"for": item.subject, "digest": canonical.digest(item.plan)} for item in found])
    else:
        output.emit("\n".join(output.safe(item.subject) for item in found) or "nothing is approved")
