"""What a program has switched on in the terminal that it draws on, and what switches it off again.

A terminal's settings in the kernel do not cover this: the alternate screen, reports of the mouse
and of the focus, bracketed paste, keys in another coding, the hidden cursor. A program that is
killed cannot take them back. xterm's "Control Sequences"; kitty's "keyboard protocol".
"""

from __future__ import annotations

_ON, _OFF = b"h", b"l"  # DECSET and DECRST
# The private modes, the way each is when no program is there; leaving the alternate screen, which
# moves the cursor and brings back its own keyboard, comes last.
_USUAL = {
    b"1": _OFF,  # cursor keys of the application
    b"5": _OFF,  # reverse video
    b"6": _OFF,  # origin
    b"7": _ON,  # lines wrap
    b"9": _OFF,  # the mouse: 9 to 1003 what is reported, the others how
    b"66": _OFF,  # the numeric keys of the application
    b"1000": _OFF,
    b"1001": _OFF,
    b"1002": _OFF,
    b"1003": _OFF,
    b"1004": _OFF,  # focus
    b"1005": _OFF,
    b"1006": _OFF,
    b"1015": _OFF,
    b"1016": _OFF,
    b"2004": _OFF,  # bracketed paste
    b"2026": _OFF,  # updates held back
    b"47": _OFF,  # the alternate screen, in three ways
    b"1047": _OFF,
    b"1049": _OFF,
    b"25": _ON,  # the cursor is shown
}
_PARAMETERS = b"0123456789;:?<=>"
_LONGEST = 64  # bytes of a sequence; what is longer is none of these
_DEEPEST = 16  # times that the keyboard's state may have been pushed


class Modes:
    """Follows a program's output."""

    def __init__(self) -> None:
        self._changed: set[bytes] = set()
        self._keypad = False
        self._pushed = 0
        self._other_keys = False
        self._rest = b""

    def follow(self, output: bytes) -> None:
        """Take note of the next piece of output, wherever it was cut."""
        output = self._rest + output
        self._rest = b""
        last = output.rfind(b"\x1b")
        if last < 0:
            return
        begun = output[last : last + _LONGEST]
        if len(begun) < _LONGEST and _is_unfinished(begun):
            self._rest, output = begun, output[:last]
        for numbers, final in _sequences(output, b"?"):
            if final in (_ON, _OFF):
                self._set(numbers, final)
        for numbers, final in _sequences(output, b">"):
            if final == b"u":
                self._pushed = min(self._pushed + 1, _DEEPEST)
            elif final == b"m" and numbers[0] == b"4":
                self._other_keys = len(numbers) > 1 and numbers[1] not in (b"", b"0")
        for numbers, final in _sequences(output, b"<"):
            if final == b"u":
                times = numbers[0] or b"1"
                self._pushed = max(self._pushed - int(times), 0) if len(times) < 3 else 0
        on, off = output.rfind(b"\x1b="), output.rfind(b"\x1b>")
        if on != off:
            self._keypad = on > off

    def undo(self) -> bytes:
        """Return what to send to have everything as usual."""
        sent = b"\x1b[<%du" % self._pushed if self._pushed else b""
        sent += b"\x1b[>4m" if self._other_keys else b""
        sent += b"\x1b>" if self._keypad else b""
        return sent + b"".join(
            b"\x1b[?%b%b" % (number, usual) for number, usual in _USUAL.items() if number in self._changed
        )

    def _set(self, numbers: list[bytes], final: bytes) -> None:
        for number in numbers:
            usual = _USUAL.get(number)
            if usual == final:
                self._changed.discard(number)
            elif usual is not None:
                self._changed.add(number)


def _is_unfinished(begun: bytes) -> bool:
    """Tell whether what begins with ESC may be the first part of a sequence that matters here."""
    return begun == b"\x1b" or (begun[1:2] == b"[" and not begun[2:].strip(_PARAMETERS))


def _sequences(output: bytes, mark: bytes) -> list[tuple[list[bytes], bytes]]:
    """Return the numbers and the final byte of every control sequence with a private mark."""
    found = []
    for piece in output.split(b"\x1b[" + mark)[1:]:
        piece = piece[:_LONGEST]
        after = piece.lstrip(b"0123456789;")
        found.append((piece[: len(piece) - len(after)].split(b";"), after[:1]))
    return found
