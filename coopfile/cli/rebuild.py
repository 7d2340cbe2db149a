"""``coop rebuild``: build the project's root file system anew."""

from __future__ import annotations

import argparse

SUMMARY = "build the root file system anew on its image: packages, setup and agent"
EPILOG = """examples:
  coop rebuild             run every command again, on the image of the lock
  coop rebuild --upgrade   first ask the registry what the image's name stands for now
  coop rebuild --debug     where a command fails, open a shell

What was built before stays in use until all of it is there; `coop clean` then frees it.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    from coopfile.cli.lock import add_frozen

    parser.add_argument(
        "--upgrade", action="store_true", help="renew the lock: the image, and the versions of packages"
    )
    add_frozen(parser)
    parser.add_argument(
        "--debug",
        action="store_true",
        help="open a shell in the sandbox of a command that fails, with all that it left",
    )


def main(options: argparse.Namespace) -> int:
    """Build."""
    from coopfile.cli.rootfs import prepare

    return prepare(options, upgrade=options.upgrade, frozen=options.frozen, rebuild=True, debug=options.debug)
