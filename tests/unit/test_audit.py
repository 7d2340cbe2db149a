"""The audit log: bounded, whole lines, no secrets, and nothing is run that cannot be written down."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import coopfile
from coopfile import audit

PARENT = str(Path(coopfile.__file__).parent.parent)


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Return where a log is to be."""
    return str(tmp_path / "state" / "audit" / "project.jsonl")


def add(log: audit.Audit, **facts: object) -> None:
    """Write one call."""
    descriptor = log.open()
    try:
        log.write(descriptor, **facts)
    finally:
        os.close(descriptor)


def test_lines(place: str) -> None:
    """Every line has all fields, the oldest first; what is no line of ours is left out."""
    log = audit.Audit(place, {})
    for number in range(3):
        add(log, tool="bash", command=f"echo {number}\n\x1b", result="status 0")
    with open(place, "ab") as file:
        file.write(b'{"time": 1}\n[]\n\xff\n{"half')
    found = audit.read(place)
    assert [entry["command"] for entry in found] == [f"echo {number}\n\x1b" for number in range(3)]
    assert all(tuple(entry) == audit.FIELDS for entry in found)
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(os.path.dirname(place)).st_mode) == 0o700
    assert "\x1b" not in Path(place).read_text(errors="replace"), (
        "a terminal that it is shown on would act on it"
    )


@pytest.mark.parametrize(
    ("secrets", "text", "written"),
    [
        ({"TOKEN": "s3cr3t"}, "curl -H s3cr3t -H s3cr3ts3cr3t", "curl -H <TOKEN> -H <TOKEN><TOKEN>"),
        ({"A": "abcd", "B": "abcdef"}, "abcdef abcd", "<B> <A>"),
        ({"PIN": "42"}, "echo 42 142 42x '42'", "echo <PIN> 142 42x '<PIN>'"),
        ({"LINES": "one\ntwo"}, "x one\ntwo y", "x <LINES> y"),
    ],
)
def test_secrets(place: str, secrets: dict[str, str], text: str, written: str) -> None:
    """Values stand in no field; a short one is found where it stands alone."""
    add(audit.Audit(place, secrets), tool=text, command=text, identity=text)
    entry = audit.read(place)[0]
    assert {entry[name] for name in ("tool", "command", "identity")} == {written}


def test_a_secret_is_not_cut_in_half(place: str) -> None:
    """Long commands are cut after secrets have been replaced."""
    secret = "s" * 100
    add(audit.Audit(place, {"TOKEN": secret}), command="x" * 4050 + secret)
    command = audit.read(place)[0]["command"]
    assert command.endswith("x<TOKEN>") and len(command) < 4100


def test_it_is_bounded(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files go, the newest lines stay, from however many processes they come."""
    monkeypatch.setattr(audit, "_MOST_BYTES", 10_000)
    log = audit.Audit(place, {})
    for number in range(500):
        add(log, command=f"{number} {'x' * 50}")
    sizes = [
        os.stat(f"{os.path.dirname(place)}/{name}").st_size for name in os.listdir(os.path.dirname(place))
    ]
    assert (len(sizes), max(sizes) < 11_000) == (4, True)
    numbers = [int(entry["command"].split()[0]) for entry in audit.read(place)]
    assert numbers == list(range(numbers[0], 500)) and len(numbers) > 50


def test_a_line_that_was_cut(place: str) -> None:
    """When the disk was full in the middle of a line, the next one is whole all the same."""
    log = audit.Audit(place)
    add(log, command="one")
    with open(place, "ab") as file:
        file.write(b'{"time": "2026')
    add(log, command="two")
    add(log, command="three")
    assert [entry["command"] for entry in audit.read(place)] == ["one", "two", "three"]


@pytest.mark.parametrize("text", ["", "é\u2028\U0001f600", "\udcff\x00\x7f\x1b", '"\\\\"', "a b'c"])
def test_every_text_is_json(place: str, text: str) -> None:
    """What is written without the library is what that reads."""
    add(audit.Audit(place), command=text, duration=0.001)
    (entry,) = audit.read(place)
    assert (entry["command"], entry["duration"], entry["user"]) == (text, 0.001, None)


def test_many_writers(place: str) -> None:
    """Processes that write and rotate at once lose nothing and mix no lines."""
    script = (
        f"import sys, os; sys.path.insert(0, {PARENT!r})\n"
        "from coopfile import audit\n"
        "audit._MOST_BYTES = 30_000\n"
        f"log = audit.Audit({place!r}, {{}})\n"
        "for number in range(100):\n"
        "    descriptor = log.open()\n"
        "    log.write(descriptor, command=f'{sys.argv[1]} {number}')\n"
        "    os.close(descriptor)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-I", "-c", script, name]) for name in "abc"]
    assert [writer.wait(120) for writer in writers] == [0] * 3
    lines = [
        line
        for name in sorted(os.listdir(os.path.dirname(place)))
        for line in Path(os.path.dirname(place), name).read_text().splitlines()
        if line  # who sees a line that another is still writing begins a new one
    ]
    assert len(lines) == 300
    assert {json.loads(line)["command"] for line in lines} == {
        f"{name} {n}" for name in "abc" for n in range(100)
    }


def test_nothing_is_run_that_cannot_be_written_down(project: Path) -> None:
    """Where the log cannot be opened, no tool is called."""
    fake = coopfile.FakeBackend(lambda call: coopfile.Answer())
    place = Path(audit.path(str(project), os.environ))
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir()
    try:
        with (
            coopfile.ToolExecutor(backend=fake, overrides={"tools.confirm": "never"}) as executor,
            pytest.raises(coopfile.CoopError, match="audit log cannot be written"),
        ):
            executor.execute("bash", {"command": "true"})
    finally:
        place.rmdir()
    assert fake.calls == []
