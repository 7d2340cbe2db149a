"""The register of running sandboxes: who could replace what another one mounts by name."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from coopfile.native import running


def test_alone(tmp_path: Path) -> None:
    """Nobody else runs, and a run leaves nothing behind."""
    state = str(tmp_path / "state")
    own = running.announce(state, ["/work"], [])
    assert own is not None
    running.leave(own)
    assert running.others(state) == []
    assert os.listdir(f"{state}/running") == ["starting"]


@pytest.mark.parametrize(
    ("source", "exposed"),
    [
        ("/work", False),  # the root itself: nobody inside can move it
        ("/work/d", True),
        ("/work/.git", False),  # on the way to what is guarded
        ("/work/.git/hooks", False),  # guarded
        ("/work/.git/hooks/pre-commit", False),  # below what is guarded
        ("/work/.github", True),  # only begins like it
        ("/workshop/d", False),
    ],
)
def test_exposed(tmp_path: Path, source: str, exposed: bool) -> None:
    """What another run can write and has not pinned is exposed, and nothing else."""
    state = str(tmp_path)
    other = running.announce(state, ["/work"], ["/work/.git/hooks"])
    noted = running.others(state)
    assert running.exposed(noted, [source]) == (source if exposed else None)
    running.leave(other)
    # It may have done it before it ended.
    assert running.exposed(noted, [source]) == (source if exposed else None)
    assert running.exposed(running.others(state), [source]) is None


def _announce_and_die(state: str) -> None:
    running.announce(state, ["/work"], [])
    os._exit(0)


def test_the_dead_do_not_count(tmp_path: Path) -> None:
    """A run that was killed is forgotten, and so is its file."""
    state = str(tmp_path)
    process = multiprocessing.get_context("fork").Process(target=_announce_and_die, args=(state,))
    process.start()
    process.join(10)
    assert len(os.listdir(f"{state}/running")) == 2
    assert running.others(state) == []
    assert os.listdir(f"{state}/running") == ["starting"]


def test_starts_are_held(tmp_path: Path) -> None:
    """While one run has its mounts made no other one starts, and then it does."""
    state = str(tmp_path)
    lock = running.hold_starts(state)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_announce_and_die, args=(state,))
    process.start()
    process.join(0.3)
    assert process.is_alive() and os.listdir(f"{state}/running") == ["starting"]
    running.let_start(lock)
    process.join(10)
    assert process.exitcode == 0
    os.close(lock)


def test_state_that_cannot_be_written(tmp_path: Path) -> None:
    """Without a state directory a native run goes on: no run on an engine can start either."""
    (tmp_path / "state").write_text("")
    assert running.announce(str(tmp_path / "state"), ["/work"], []) is None
    running.leave(None)
    with pytest.raises(OSError):
        running.hold_starts(str(tmp_path / "state"))
