"""How ``coop diff`` shows changes."""

from __future__ import annotations

import pytest

from coopfile.cli.diff import _lines, size
from coopfile.rootfs.overlay import Change
from coopfile.session.changes import Difference


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (10**16, "10000.0 TB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    """Sizes are in the largest unit that leaves something in front of the point."""
    assert size(count) == shown


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        (Change("added", "/a", "file", 3, mode=0o644), "added    /a  (3 B)"),
        (Change("added", "/a", "directory", mode=0o755), "added    /a/"),
        (Change("added", "/a", "pipe", mode=0o644), "added    /a  (pipe)"),
        (Change("deleted", "/a", "directory", before=1500, mode_before=0o755), "deleted  /a/  (1.5 kB)"),
        (Change("changed", "/a", "file", 3, 5, None, 0o644, 0o644), "changed  /a  (5 B → 3 B)"),
        (Change("changed", "/a", "file", 3, 3, None, 0o755, 0o644), "changed  /a  (3 B, mode 644 → 755)"),
        (Change("changed", "/a", "file", 3, 9, "directory"), "changed  /a  (directory → file, 9 B → 3 B)"),
        (Change("changed", "/a", "link", None, 3, "file", None, 0o644), "changed  /a  (file → link, 3 B)"),
        (Change("added", "/\x1b[2J\n", "file", 0, mode=0o644), "added    /\\x1b[2J\\n  (0 B)"),
    ],
)  # fmt: skip
def test_lines(change: Change, shown: str) -> None:
    """A change is one line: what, where, and how much; nothing in it moves a terminal's cursor."""
    assert list(_lines(Difference(change), False)) == [shown]


def test_content() -> None:
    """Tabs are kept, everything else that is not to be seen is escaped, and colours are the usual ones."""
    change = Change("changed", "/a", "file", 3, 5, None, 0o644, 0o644)
    item = Difference(change, ("@@ -1 +1 @@", "-\ta\r", "+\x1b[31m", " same"))
    assert list(_lines(item, False))[1:] == ["@@ -1 +1 @@", "-\ta\\r", "+\\x1b[31m", " same"]
    colored = list(_lines(item, True))
    assert colored[1] == "\x1b[36m@@ -1 +1 @@\x1b[0m" and colored[4] == " same"
