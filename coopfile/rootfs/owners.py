"""What of owners, modes and extended attributes is kept when an image is unpacked."""

from __future__ import annotations

import stat

from coopfile.record import Record

_SET_IDS = stat.S_ISUID | stat.S_ISGID


class Owners(Record):
    """How the owners of files are kept.

    ``kept``: files are given to the ids that the archive names, which takes a real root,
    or root of a user namespace whose maps have them. ``capabilities`` keeps file
    capabilities too.

    Without ``kept`` everything belongs to the caller. Intended owners are not recorded
    anywhere: a build and a run see one id only, and calls that change owners are faked
    for them. Files lose their set-id bits, which would lend the caller's own rights;
    directories keep theirs, which only name the group of new files.
    """

    kept: bool
    capabilities: bool

    def mode(self, mode: int) -> int:
        """Return the mode that a file gets for one in an archive."""
        return mode if self.kept else mode & ~_SET_IDS

    def attribute(self, name: bytes) -> bool:
        """Tell whether an extended attribute is kept: none that the kernel or overlayfs obeys, save one."""
        if name == b"security.capability":
            return self.capabilities
        return name.startswith(b"user.") and not name.startswith(b"user.overlay.")


EXACT = Owners(kept=True, capabilities=True)
"""By root of the machine."""
MAPPED = Owners(kept=True, capabilities=False)
"""By root of a user namespace with ranges of sub-ids, which the caller has made and is in."""
SINGLE = Owners(kept=False, capabilities=False)
"""By anybody, with one id."""
