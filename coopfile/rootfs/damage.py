"""What is wrong with a layer, before anybody knows which layer it is."""

from __future__ import annotations

import os

_LONGEST = 200


class DamagedError(Exception):
    """A layer is not what it should be, or wants what it must not have; the text goes into a message."""


def shown(name: bytes) -> str:
    """Return a name from an archive as it may be shown: quoted, one line, not too long."""
    text = os.fsdecode(name)
    return repr(text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…")
