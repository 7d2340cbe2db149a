"""What a program has switched on in a terminal, found in what it draws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coopfile.native.modes import Modes

DRAWN = [
    (b"plain \x1b[1;31mred\x1b[0m text", b""),
    (b"\x1b[?1049h drawing \x1b[?1049l", b""),
    (b"\x1b[?1049h drawing", b"\x1b[?1049l"),
    (b"\x1b[?25l", b"\x1b[?25h"),
    (b"\x1b[?25h\x1b[?25l\x1b[?25h", b""),
    (b"\x1b[?1000;1006h\x1b[?1000l", b"\x1b[?1006l"),
    (b"\x1b[?2004h\x1b[?1h\x1b=", b"\x1b>\x1b[?1l\x1b[?2004l"),
    (b"\x1b=\x1b>", b""),
    (b"\x1b[>4;2m", b"\x1b[>4m"),
    (b"\x1b[>4;2m\x1b[>4m", b""),
    (b"\x1b[>4;2m\x1b[>4;0m", b""),
    (b"\x1b[>1u\x1b[>5u\x1b[<u", b"\x1b[<1u"),
    (b"\x1b[>1u\x1b[<99999u", b""),
    (b"\x1b[>4u\x1b[?1049h\x1b[?7l\x1b[?25l", b"\x1b[<1u\x1b[?7h\x1b[?1049l\x1b[?25h"),
    (b"\x1b[?4242h\x1b[?h\x1b[?;h", b""),
    (b"\x1b[?1049$p\x1b[?1049s\x1b[?25", b""),
    (b"\x1b[?" + b"1" * 1000 + b"h", b""),
    (b"\x1b[\x1b[?1049h", b"\x1b[?1049l"),
]


@pytest.mark.parametrize(("drawn", "undone"), DRAWN)
def test_undone(drawn: bytes, undone: bytes) -> None:
    """What is left on is switched off, and nothing else is sent."""
    modes = Modes()
    modes.follow(drawn)
    assert modes.undo() == undone


@pytest.mark.parametrize(("drawn", "undone"), DRAWN)
def test_cut_anywhere(drawn: bytes, undone: bytes) -> None:
    """It does not matter how output is cut into pieces."""
    modes = Modes()
    for position in range(len(drawn)):
        modes.follow(drawn[position : position + 1])
    assert modes.undo() == undone
    for position in range(len(drawn)):
        modes = Modes()
        modes.follow(drawn[:position])
        modes.follow(drawn[position:])
        assert modes.undo() == undone, position


PIECES = st.lists(
    st.one_of(
        st.sampled_from(b"\x1b [ ? 1049 25 ; h l > < u = 4m".split()),
        st.binary(max_size=8),
    )
)  # fmt: skip


@given(PIECES)
def test_any_output(pieces: list[bytes]) -> None:
    """Any bytes are taken, in bounded memory; to undo what was undone is nothing more."""
    modes = Modes()
    for piece in pieces:
        modes.follow(piece)
    undone = modes.undo()
    assert len(undone) < 400
    modes.follow(b"x" + undone)
    assert modes.undo() == b""
