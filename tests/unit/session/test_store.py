"""What is known of sessions on disk, and who may start or end one."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from coopfile.session import store
from coopfile.session.store import State

STATE = State("app-1", "work", "/home/me/app", None, "native", "sha256:0", "{}", 1000, 2000, 60000)


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """Return the directory of a session of which nothing is known yet."""
    path = tmp_path / "sessions" / STATE.id
    path.mkdir(parents=True)
    return str(path)


def test_written_and_read(directory: str) -> None:
    """A state is read as it was written, and only its owner can read it."""
    store.write(directory, STATE)
    assert store.read(directory) == STATE
    assert os.stat(f"{directory}/state").st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "change",
    [
        {"version": 99},
        {"id": "other"},
        {"name": "../x"},
        {"name": 5},
        {"root": None},
        {"ttl_ms": "1"},
        {"leased": 0},
        {"user": 1},
        {"started": None},
        {"more": 1},
    ],
)
def test_what_makes_no_sense_is_not_known(directory: str, change: dict[str, object]) -> None:
    """A field that is of another type, another session's or another version's spoils all of it."""
    fields = {name: getattr(STATE, name) for name in State._fields}
    Path(directory, "state").write_text(json.dumps({**fields, **change}))
    assert store.read(directory) is None
    known = store.look(directory)
    assert known is not None and known.state is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\0", b"{}", b"[" * 100_000, b'{"id": "app-1"}']
)
def test_damage(directory: str, content: bytes) -> None:
    """Whatever is in the file, it is damaged, not an error."""
    Path(directory, "state").write_bytes(content)
    assert store.read(directory) is None
    assert [known.id for known in store.known(os.path.dirname(os.path.dirname(directory)))] == ["app-1"]


def test_other_kinds_of_files(directory: str) -> None:
    """A link, a directory or a FIFO in the state's place is not followed, and nobody waits for it."""
    path = Path(directory, "state")
    os.mkfifo(path)
    assert store.read(directory) is None
    path.unlink()
    path.mkdir()
    assert store.read(directory) is None
    path.rmdir()
    path.symlink_to("/etc/passwd")
    assert store.read(directory) is None


def test_what_runs_kept_is_no_session(directory: str) -> None:
    """The directory of a project's runs is a session's only when it has been one."""
    Path(directory, "persist").mkdir()
    Path(directory, "project").write_text("/home/me/app\n")
    assert store.look(directory) is None
    held = store.keep_alive(directory)
    assert held is not None
    known = store.look(directory)
    assert known is not None and (known.state, known.root) == (None, "/home/me/app")
    os.close(held)


def test_nothing_is_known_where_there_is_nothing(tmp_path: Path) -> None:
    """Without any session the list is empty."""
    assert list(store.known(str(tmp_path / "none"))) == []


def test_alive(directory: str) -> None:
    """A session lives as long as somebody holds its lock, and one at a time does."""
    assert not store.is_alive(directory)
    held = store.keep_alive(directory)
    assert held is not None
    assert store.is_alive(directory) and not store.wait_end(directory, 0)
    os.close(held)
    assert not store.is_alive(directory) and store.wait_end(directory, 0)


def test_without_a_descriptor_to_look_with(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that cannot be looked at is not taken for one that has ended."""

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", full)
    assert store.is_alive(directory)


def test_one_starts_at_a_time(directory: str) -> None:
    """Who comes second waits, and is told when that was too long."""
    with (
        store.starting(directory, 1),
        pytest.raises(store.BusyError, match="another process"),
        store.starting(directory, 0),
    ):
        pass
    with store.starting(directory, 1):
        pass


def _start(directory: str, began: Path) -> None:
    with store.starting(directory, 30):
        began.write_text(str(os.stat(directory).st_ino))


def test_removed_while_another_waits(directory: str, tmp_path: Path) -> None:
    """Who waited for the end of a removal has the lock of the session that it makes anew."""
    began = tmp_path / "began"
    other = multiprocessing.get_context("fork").Process(target=_start, args=(directory, began))
    with store.starting(directory, 1):
        other.start()
        assert not began.exists()
        os.unlink(f"{directory}/starting")
        os.rename(directory, f"{directory}.gone")
    other.join(30)
    assert other.exitcode == 0
    assert int(began.read_text()) == os.stat(directory).st_ino


def test_number_of_who_keeps_it(directory: str) -> None:
    """The number beside the lock is told as long as somebody holds that and has not taken it back."""
    held = store.keep_alive(directory)
    assert held is not None
    assert store.keeper(directory) is None
    store.tell_keeper(held, 4711)
    assert store.keeper(directory) == 4711
    store.tell_end(held)
    assert store.keeper(directory) is None
    store.tell_keeper(held, 4711)
    copy = os.dup(held)
    store.let_go(held)
    assert not store.is_alive(directory), "whoever has a copy of the descriptor"
    assert store.keeper(directory) is None
    os.close(copy)


def test_next_one_does_not_tell_of_the_last(directory: str) -> None:
    """What a killed session has left beside the lock is nobody's number once another one has it."""
    held = store.keep_alive(directory)
    assert held is not None
    store.tell_keeper(held, 4711)
    os.close(held)
    held = store.keep_alive(directory)
    assert held is not None
    assert store.keeper(directory) is None
    os.close(held)


def test_leads_to(directory: str) -> None:
    """A session can be found as long as its socket is there and the lock is the one that it holds."""
    held = store.keep_alive(directory)
    assert held is not None
    assert not store.leads_to(directory, held)
    with socket.socket(socket.AF_UNIX) as listener:
        place = os.open(directory, os.O_PATH)
        listener.bind(f"/proc/self/fd/{place}/socket")
        os.close(place)
    assert store.leads_to(directory, held)
    os.rename(f"{directory}/alive", f"{directory}/other")
    assert not store.leads_to(directory, held)
    Path(directory, "alive").touch()
    assert not store.leads_to(directory, held)
    os.close(held)
