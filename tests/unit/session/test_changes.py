"""How differences of content are shown."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.session import changes
from coopfile.session.changes import unified

_HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
LINES = st.lists(st.sampled_from(["a", "b", "", " x", "-y"]), max_size=12)
TEXT = st.builds(lambda lines, end: "\n".join(lines) + end, LINES, st.sampled_from(["", "\n"]))


def patched(old: str, diff: list[str]) -> str:
    """Apply a unified diff as patch(1) does, strictly."""
    before, after, position = old.split("\n"), [], 0
    if before[-1] == "":
        before.pop()
    ends = True
    number = 0
    while number < len(diff):
        head = _HEAD.fullmatch(diff[number])
        assert head is not None, diff[number]
        start, count, new_start, new_count = (1 if part is None else int(part) for part in head.groups())
        start -= count > 0
        after += before[position:start]
        assert len(after) == new_start - (new_count > 0)
        position = start
        number += 1
        while number < len(diff) and not _HEAD.fullmatch(diff[number]):
            sign, text = diff[number][:1], diff[number][1:]
            if sign == "\\":
                ends = diff[number - 1][0] == "-"
            elif sign == "+":
                after.append(text)
                new_count -= 1
            else:
                assert before[position] == text
                position += 1
                count -= 1
                if sign == " ":
                    after.append(text)
                    new_count -= 1
            number += 1
        assert (count, new_count) == (0, 0)
    untouched = position < len(before) or not diff
    after += before[position:]
    if untouched:
        ends = old.endswith("\n") or old == ""
    return "\n".join(after) + ("\n" if after and ends else "")


@given(TEXT, TEXT)
def test_a_diff_leads_to_the_new_text(old: str, new: str) -> None:
    """Applied to the old text, the hunks give the new one."""
    if old != new:
        assert patched(old, list(unified(old.split("\n"), new.split("\n")))) == new


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@pytest.mark.parametrize("limit", [0, 1_000_000])
def test_patch_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """The real program does as well, also when there was too much to compare."""
    monkeypatch.setattr(changes, "_MOST_PAIRS", limit)
    old = "".join(f"{number}\n" for number in range(100))
    new = old.replace("\n7\n", "\nseven\n").replace("50\n", "").replace("99\n", "99\nhundred")
    (tmp_path / "file").write_text(old)
    diff = "\n".join(["--- file", "+++ file", *unified(old.split("\n"), new.split("\n"))]) + "\n"
    done = subprocess.run(
        ["patch", "-p0"], input=diff, text=True, cwd=tmp_path, capture_output=True, timeout=30
    )
    assert done.returncode == 0, done
    assert (tmp_path / "file").read_text() == new


def test_context() -> None:
    """Three lines around a difference are shown, and not the rest."""
    old = [str(number) for number in range(100)] + [""]
    new = [*old[:50], "x", *old[51:]]
    assert list(unified(old, new)) == [
        "@@ -48,7 +48,7 @@",
        *(" 47", " 48", " 49", "-50", "+x", " 51", " 52", " 53"),
    ]


def test_much_alike_is_quick() -> None:
    """A difference in a long text takes no time that grows with its square."""
    old = ["same"] * 100_000 + [""]
    new = [*old[:50_000], "x", *old[50_000:]]
    assert next(iter(unified(old, new))) == "@@ -49998,6 +49998,7 @@"
