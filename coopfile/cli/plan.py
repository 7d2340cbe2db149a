"""``coop plan``: what a Coopfile comes to, where it comes from, and how it differs from another."""

from __future__ import annotations

import argparse

SUMMARY = "show the plan that the Coopfile comes to"
EPILOG = """examples:
  coop plan                             for people
  coop plan --json > plan.json          canonical: the same bytes on every machine
  coop plan --explain                   where each value comes from (-v: each built-in item too)
  coop plan --operations                what the native runner will do, in order
  coop plan --diff plan.json            what the Coopfile widens and narrows since then
  coop plan --diff ../other/Coopfile --as signal:+15555550100
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options; they ask for one view each."""
    view = parser.add_mutually_exclusive_group()
    view.add_argument("--explain", action="store_true", help="show where each value comes from")
    view.add_argument(
        "--operations", action="store_true", help="show what the native runner will do, in order"
    )
    view.add_argument(
        "--diff",
        metavar="OTHER",
        help="show what changes from OTHER, a Coopfile or a plan's JSON, to this plan",
    )
    view.add_argument("--digest", action="store_true", help="print the plan's digest only")


def main(options: argparse.Namespace) -> int:
    """Compile, and print the view that was asked for."""
    # Every verb's module is loaded for the help; what compiling takes is loaded here.
    from coopfile.cli.views import show

    show(options)
    return 0
