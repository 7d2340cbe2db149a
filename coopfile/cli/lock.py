"""``coop lock``: write down which image the Coopfile's name stands for."""

from __future__ import annotations

import argparse
import os

from coopfile.cli.options import request
from coopfile.errors import CoopError, UsageError
from coopfile.lock import Lock
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coopfile.compiling import Compiled
    from coopfile.plan.model import Plan

SUMMARY = "write Coopfile.lock: which image base.image stands for"
EPILOG = """examples:
  coop lock                ask the registry, unless there is a lock
  coop lock --upgrade      ask it again: the tag has moved, or base.image is another
  coop lock --frozen       only check that there is a lock, of this image

Commit Coopfile.lock with the Coopfile: every machine then builds from the same image.
`coop init` adds the versions of the packages that it found.
"""

_RENEW = "coop rebuild --upgrade builds anew and renews the lock"


class Settled(Record):
    """The lock that a project is built with: where it lies, what it says now, and what it has to say.

    ``pinned`` tells that the Coopfile itself has the digest: then a lock only keeps packages, and
    ``path`` may be None, where there is no Coopfile of a project's.
    """

    path: str | None
    before: Lock | None
    after: Lock
    pinned: bool = False

    @property
    def name(self) -> str:
        """The lock for people."""
        return os.path.basename(self.path or "Coopfile.lock")

    def apply(self, plan: Plan) -> Plan:
        """Return the plan with the digest that the lock has to say."""
        from coopfile import lock

        return lock.locked(plan, self.after, self.name)


def add_frozen(parser: argparse.ArgumentParser) -> None:
    """Add the option of all the verbs that write the lock."""
    parser.add_argument(
        "--frozen", action="store_true", help="fail rather than write or change the lock, as in CI"
    )


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add this verb's options."""
    parser.add_argument("--upgrade", action="store_true", help="ask the registry though there is a lock")
    add_frozen(parser)


def main(options: argparse.Namespace) -> int:
    """Resolve the image and write the lock."""
    from coopfile.cli.execution import require_approval, say
    from coopfile.compiling import compile_project

    compiled = compile_project(request(options).replace(locked=False))
    require_approval(compiled)
    if compiled.plan.base.image is None:
        raise CoopError("base.image is not set: there is nothing to lock", "name an image in [base]")
    settled = settle(compiled, upgrade=options.upgrade, frozen=options.frozen)
    tell = (lambda _: None) if options.quiet else say
    if settled.pinned:
        tell("base.image has a digest: it needs no lock")
    elif settled.after == settled.before:
        tell(f"{settled.name} is right: {settled.after.image} is {settled.after.digest}")
    else:
        write(settled, tell)
    return 0


def settle(compiled: Compiled, *, upgrade: bool = False, frozen: bool = False) -> Settled:
    """Return the lock to build with, of a project that was compiled without it; nothing is written.

    The registry is asked when there is no lock, and with ``upgrade``. Raises CoopError when the
    lock is of another image, and with ``frozen`` when there is none.
    """
    from coopfile import lock
    from coopfile.find import read_bounded
    from coopfile.launching import outside
    from coopfile.rootfs import fetch

    if upgrade and frozen:
        raise UsageError("--upgrade renews the lock, and --frozen keeps it as it is", "leave one out")
    plan, project = compiled.plan, compiled.project
    image, path = plan.base.image, project.lock_path
    assert image is not None
    before = None
    if project.lock is not None:
        try:
            before = lock.parse(read_bounded(project.lock), project.lock.name)
        except CoopError:
            if not upgrade:
                raise
    named = lock.named(image)
    if image.digest is not None:  # the Coopfile itself says what it is; the lock may know its packages
        after = Lock(named, image.digest)
        known = before is not None and (before.image, before.digest) == (after.image, after.digest)
        return Settled(path, before, before if known and before is not None else after, pinned=True)
    if path is None:
        raise CoopError("a lock lies beside a Coopfile, and there is none", "coop init writes one")
    name = os.path.basename(path)
    if before is not None and not upgrade:
        if before.image != named:
            raise lock.stale(before, image, name)
        return Settled(path, before, before)
    if frozen:
        raise CoopError(f"{name} is missing, and --frozen writes none", "coop lock writes it; commit it")
    after = Lock(named, fetch.resolve(image, outside(plan, project, os.environ), project.root))
    if before is not None and (before.image, before.digest) == (after.image, after.digest):
        after = before
    return Settled(path, before, after)


def write(settled: Settled, tell: Callable[[str], None]) -> None:
    """Write a lock that has changed, and say so. Raises CoopError if others have renewed it meanwhile."""
    from coopfile import lock

    before, after = settled.before, settled.after
    if settled.path is None or after == before or (settled.pinned and not after.packages):
        return
    _check_current(settled, settled.path)
    lock.write(after, settled.path)
    if before is not None and (before.image, before.digest) == (after.image, after.digest):
        tell(f"wrote {settled.name}: the versions of packages")
        return
    was = f" (was {before.digest})" if before is not None and before.image == after.image else ""
    tell(f"wrote {settled.name}: {after.image} is {after.digest}{was}")


def _check_current(settled: Settled, path: str) -> None:
    """Refuse to write over a lock that has come to say something else: a build may have taken an hour."""
    from coopfile import lock, wholefile
    from coopfile.find import LARGEST

    expected = [(item.image, item.digest) for item in (settled.before, settled.after) if item is not None]
    try:
        text = wholefile.read(path, LARGEST)
        there = None if text is None else lock.parse(text, settled.name)
        renewed = there is not None and (there.image, there.digest) not in expected
    except (CoopError, OSError):
        renewed = settled.before is not None  # else it could not be read before either
    if renewed:
        raise CoopError(
            f"{settled.name} was changed since it was read, and is left as it is now",
            "run it again: it goes by what the lock says now",
        )


def with_packages(
    settled: Settled,
    found: Mapping[str, Mapping[str, str]],
    tell: Callable[[str], None],
    *,
    upgrade: bool = False,
    frozen: bool = False,
) -> Settled:
    """Return the lock with the versions that a build found, by manager and name.

    A version that it knows already stays, with a warning when another was found, unless
    ``upgrade`` renews it. With ``frozen`` whatever differs is a CoopError.
    """
    from coopfile import lock

    if not lock.are_versions(found):
        raise CoopError("the package managers of this image name versions that are none", None)
    known = {} if upgrade else settled.after.packages
    others, packages = [], {}
    for manager, versions in found.items():
        locked = known.get(manager, {})
        packages[manager] = {name: locked.get(name, version) for name, version in versions.items()}
        for name, version in versions.items():
            if name not in locked and frozen:
                others.append(f"packages.{manager}: {name} is {version}, and not in {settled.name}")
            elif locked.get(name, version) != version:
                others.append(f"packages.{manager}: {name} is {version}, not {locked[name]}")
    if others and frozen:
        listed = "".join(f"\n  {line}" for line in others)
        raise CoopError(f"the build found other packages than {settled.name} says:{listed}", _RENEW)
    for line in others:
        tell(f"{line} as {settled.name} says: {_RENEW}")
    packages = {manager: versions for manager, versions in packages.items() if versions}
    after = settled.after.replace(packages=packages)
    return settled if frozen else settled.replace(after=after)
