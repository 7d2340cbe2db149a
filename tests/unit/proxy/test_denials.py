"""What was blocked is kept within bounds, and read again whatever became of it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from coopfile.plan.sessions import log_path
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


def test_long_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a session's proxy blocks in its long life, the file stays short, and has what was last."""
    place = log_path(str(tmp_path), "project-1")
    log = open_log(place)
    kept = Denials(-1, log)
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    for number in range(8000):
        clock[0] += 2.0
        kept.add(f"h{number}.example", 443, "x" * 200)
        assert os.fstat(log).st_size <= (512 << 10) + 1000
    os.close(log)
    hosts = [entry["host"] for entry in denials.read(place)]
    assert len(hosts) > 500 and hosts == [f"h{number}.example" for number in range(8000 - len(hosts), 8000)]


def test_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood does not push out what was there before, and how much was left out is told."""
    place = log_path(str(tmp_path), "project-1")
    log = open_log(place)
    kept = Denials(-1, log)
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    kept.add("first.example", 443, "x")
    for _ in range(100_000):
        kept.add("flood.example", 443, "x" * 200)
    clock[0] += 60.0
    kept.add("last.example", 443, "x")
    os.close(log)
    found = denials.read(place)
    assert (found[0]["host"], found[-1]["host"]) == ("first.example", "last.example")
    assert found[-2]["text"].startswith("99501 more were blocked") and len(found) == 502
    assert len(kept.recent) == 30 and kept.recent[-1].host == "last.example"


def test_since(tmp_path: Path) -> None:
    """What was blocked from a moment on is told, whatever else is in the file, each text once."""
    place = log_path(str(tmp_path), "project-1")
    assert denials.since(place, 0.0) == ()
    log = open_log(place)
    kept = Denials(-1, log)
    kept.add("before.example", 443, "before")
    began = time.time()
    for port in (80, 443):
        kept.add("after.example", port, "after")
    os.close(log)
    found = denials.since(place, began)
    assert [(denial.host, denial.port) for denial in found] == [("after.example", 80), ("after.example", 443)]
    assert denials.told(found) == ("after",)
    os.utime(place, (1, 1))
    assert denials.since(place, began) == ()
    many = tuple(found[0].replace(text=str(number)) for number in range(50))
    assert len(denials.told(many)) == 11 and "coop log" in denials.told(many)[-1]


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
    deep = b"[" * 100_000
    place.write_bytes(
        b'{"time": \n[]\n\xff\n{"host": "a"}\n' + deep + b"\n" + json.dumps(good).encode() + b"\n"
    )
    assert denials.read(str(place)) == [good]
    assert denials.read(str(tmp_path / "none.jsonl")) == []
