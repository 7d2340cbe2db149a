"""``coop lock``: write down which image the Coopfile's name stands for."""

from __future__ import annotations

import argparse
import os

from coopfile.cli.options import request
from coopfile.errors import CoopError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from coopfile.compiling import Compiled

SUMMARY = "write Coopfile.lock: which image base.image stands for"
EPILOG = """examples:
  coop lock                ask the registry, unless there is a lock
  coop lock --upgrade      ask it again: the tag has moved, or base.image is another

Commit Coopfile.lock with the Coopfile: every machine then builds from the same image.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--upgrade", action="store_true", help="ask the registry though there is a lock")


def main(options: argparse.Namespace) -> int:
    """Resolve the image and write the lock."""
    from coopfile.cli.run import require_approval, say
    from coopfile.compiling import compile_project

    compiled = compile_project(request(options).replace(locked=False))
    require_approval(compiled)
    image = compiled.plan.base.image
    if image is None:
        raise CoopError("base.image is not set: there is nothing to lock", "name an image in [base]")
    write(compiled, upgrade=options.upgrade, tell=(lambda _: None) if options.quiet else say)
    return 0


def write(compiled: Compiled, *, upgrade: bool, tell: Callable[[str], None]) -> None:
    """Write the lock of a project, compiled without it, unless it is right; ``tell`` hears the outcome."""
    from coopfile import lock
    from coopfile.cli.elsewhere import place
    from coopfile.find import read_bounded
    from coopfile.rootfs import base

    plan, project = compiled.plan, compiled.project
    image, path = plan.base.image, project.lock_path
    assert image is not None
    if image.digest is not None:
        return  # the Coopfile itself says what it is
    if path is None:
        raise CoopError("a lock lies beside a Coopfile, and there is none", "coop init writes one")
    before = None
    if project.lock is not None:
        try:
            before = lock.parse(read_bounded(project.lock), project.lock.name)
        except CoopError:
            if not upgrade:
                raise
    name, known = os.path.basename(path), before is not None and before.image == lock.named(image)
    if before is not None and not upgrade:
        if not known:
            raise lock.stale(before, image, name)
        tell(f"{name} is right: {before.image} is {before.digest}")
        return
    after = lock.Lock(lock.named(image), base.resolve(image, place(plan, project).environment))
    if after == before:
        tell(f"{name} is right: {after.image} is still {after.digest}")
        return
    lock.write(after, path)
    was = f" (was {before.digest})" if before is not None and known else ""
    tell(f"wrote {name}: {after.image} is {after.digest}{was}")
