"""What was blocked is kept within bounds, and read again whatever became of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from coopfile.plan.reach import log_path
from coopfile.proxy import denials
from coopfile.proxy.denials import Denials, open_log


def test_log(tmp_path: Path) -> None:
    """Every line is JSON whatever a text holds, and what is said twice is noted once."""
    place = log_path(str(tmp_path / "state"), "project-1")
    log = open_log(place)
    notes, notes_end = os.pipe()
    kept = Denials(notes_end, log)
    for _ in range(2):
        kept.add("a.example", 443, 'no "way"\n\x1b \u2028')
    os.close(notes_end)
    with os.fdopen(notes, "rb") as file:
        assert file.read().count(b"\n") == 1
    entries = denials.read(place)
    assert [(entry["host"], entry["port"], entry["text"]) for entry in entries] == [
        ("a.example", 443, 'no "way"\n\x1b \u2028')
    ] * 2
    assert entries[0]["kind"] == "network" and entries[0]["time"].endswith("Z")
    assert Path(place).read_bytes().isascii() and Path(place).stat().st_mode & 0o777 == 0o600
    os.close(log)


def test_bounds(tmp_path: Path) -> None:
    """One run adds so many lines and notes, and a full file makes room at the next run."""
    place = log_path(str(tmp_path), "project-1")
    for _ in range(8):
        log = open_log(place)
        notes, notes_end = os.pipe()
        os.set_blocking(notes_end, False)
        kept = Denials(notes_end, log)
        for number in range(600):
            kept.add(f"h{number}.example", 443, "x" * 200)
        os.close(notes_end)
        os.close(notes)
        os.close(log)
    assert sum(file.stat().st_size for file in Path(place).parent.iterdir()) < 2 << 20
    assert 500 < len(denials.read(place)) <= 8 * 500


def test_no_pipe_and_no_disk() -> None:
    """A full pipe and a full disk do not matter."""
    full = os.open("/dev/full", os.O_WRONLY)
    Denials(full, full).add("a.example", 443, "text")
    os.close(full)


def test_damage(tmp_path: Path) -> None:
    """Lines that a crash or somebody left are passed over; a session without a file has blocked nothing."""
    place = tmp_path / "denials" / "p.jsonl"
    place.parent.mkdir()
    good = {"time": "t", "kind": "network", "host": "a", "port": 1, "text": "x"}
    place.write_bytes(b'{"time": \n[]\n\xff\n{"host": "a"}\n' + json.dumps(good).encode() + b"\n")
    assert denials.read(str(place)) == [good]
    assert denials.read(str(tmp_path / "none.jsonl")) == []
