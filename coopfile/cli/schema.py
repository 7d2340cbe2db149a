"""``coop schema``: the JSON Schema of Coopfiles, or of plans."""

from __future__ import annotations

import argparse

from coopfile import data
from coopfile.cli import output

SUMMARY = "print the JSON Schema of Coopfiles, or of plans"
EPILOG = """examples:
  coop schema > coopfile.schema.json      for an editor that has no network
  coop schema --plan                      the schema of what `coop plan --json` prints
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--plan", action="store_true", help="the schema of plans instead")


def main(options: argparse.Namespace) -> int:
    """Print the schema as it stands in the installation."""
    output.emit(data.text("schema/plan.schema.json" if options.plan else "schema/coopfile.schema.json"))
    return 0
