"""``coop clean``: remove the stages of root file systems that no project uses."""

from __future__ import annotations

import argparse
import os

from coopfile.cli import output
from coopfile.find import directories
from coopfile.rootfs.store import Store

SUMMARY = "remove what no project uses any more from the store of root file systems"
EPILOG = """examples:
  coop clean --dry-run     what it would free
  coop clean

A project counts while its directory exists; what runs now stays.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def main(options: argparse.Namespace) -> int:
    """Collect, and say how much was freed."""
    store = Store(directories(os.environ).rootfs)
    freed = store.collect(dry_run=options.dry_run)
    if options.json:
        stages = [{"key": stage.key, "kind": stage.kind, "size": stage.size} for stage in freed.stages]
        output.emit_json({"stages": stages, "size": freed.size, "removed": not options.dry_run})
    elif not options.quiet:
        for stage in freed.stages:
            about = stage.about.get("image", "")
            output.emit(f"{stage.size / 1e6:9.1f} MB  {stage.kind}  {output.safe(str(about))}")
        verb = "would free" if options.dry_run else "freed"
        output.emit(f"{verb} {freed.size / 1e6:.1f} MB in {len(freed.stages)} stages")
    return 0
