"""Which image of an index is for a platform: by the names that Go and the OCI specification use."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.rootfs.model import Platform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from coopfile.rootfs.documents import Entry

_MACHINES = {
    "x86_64": ("amd64", ""),
    "amd64": ("amd64", ""),
    "aarch64": ("arm64", "v8"),
    "arm64": ("arm64", "v8"),
    "armv8l": ("arm", "v7"),
    "armv7l": ("arm", "v7"),
    "armv6l": ("arm", "v6"),
    "i386": ("386", ""),
    "i486": ("386", ""),
    "i586": ("386", ""),
    "i686": ("386", ""),
    "loongarch64": ("loong64", ""),
    "mips64": ("mips64le", ""),
    "ppc64le": ("ppc64le", ""),
    "riscv64": ("riscv64", ""),
    "s390x": ("s390x", ""),
}

# A variant runs what an earlier one of its architecture was built for. The first
# is what a missing variant means.
_VARIANTS = {
    "amd64": ("v1", "v2", "v3", "v4"),
    "arm": ("v7", "v5", "v6", "v7", "v8"),
    "arm64": ("v8", "v8.1", "v8.2", "v8.3", "v8.4", "v8.5", "v8.6", "v8.7", "v8.8", "v8.9", "v9"),
}
_ORDER = {name: sorted(set(variants)) for name, variants in _VARIANTS.items()}


def of_machine(machine: str) -> Platform:
    """Return the platform of a machine of Linux, by the name that ``uname -m`` gives it. Raises CoopError."""
    try:
        return Platform("linux", *_MACHINES[machine])
    except KeyError:
        raise CoopError(f"there is no name for the architecture {machine} in images", None) from None


def fitness(offered: Platform, wanted: Platform) -> int | None:
    """Return how well an image for one platform suits another, more is better; None: it does not run."""
    if (offered.os, offered.architecture) != (wanted.os, wanted.architecture):
        return None
    order = _ORDER.get(wanted.architecture)
    if order is None:
        return 0 if offered.variant in ("", wanted.variant) else None
    first = _VARIANTS[wanted.architecture][0]
    mine, theirs = wanted.variant or first, offered.variant or first
    if mine not in order or theirs not in order:
        return 0 if mine == theirs else None
    return order.index(theirs) if order.index(theirs) <= order.index(mine) else None


def choose(what: str, entries: Sequence[Entry], wanted: Platform) -> Entry:
    """Return the entry of an index for a platform, the first of the best. Raises CoopError.

    A single entry that names no platform is taken; its config will tell.
    """
    best: tuple[int, Entry] | None = None
    for entry in entries:
        fits = None if entry.platform is None else fitness(entry.platform, wanted)
        if fits is not None and (best is None or fits > best[0]):
            best = fits, entry
    if best is not None:
        return best[1]
    if len(entries) == 1 and entries[0].platform is None:
        return entries[0]
    raise missing(what, wanted, [str(entry.platform) for entry in entries if entry.platform is not None])


def missing(what: str, wanted: Platform, there: Sequence[str]) -> CoopError:
    """Return the error for an image that is not there for a platform."""
    names = list(dict.fromkeys(there))
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    return CoopError(
        f"{what} is not there for {wanted}" + (f", only for {shown}" if shown else ""),
        "use another image or tag, or push one for this platform",
    )
