"""What the file tools do: parts of files as text, whole files, and edits that match exactly once."""

from __future__ import annotations

from coopfile.tools.confined import FileError, Tree

_LOOKED_AT = 8192  # bytes in which a NUL says that a file is no text
_SHOWN = 10  # places of a text in a message
_STEP = 1 << 16  # bytes in which lines are counted at once


def read_file(tree: Tree, path: str, offset: int = 1, limit: int | None = None, most: int = 100_000) -> str:
    """Return lines of a file, from line ``offset`` on, ``limit`` of them and no more than ``most`` bytes.

    What is not the whole file says so in a last line in brackets. Bytes that are not UTF-8 become
    U+FFFD. Raises FileError.
    """
    data, _ = tree.read(path)
    _check_text(path, data)
    if not data:
        return "[the file is empty]"
    count = data.count(b"\n") + (not data.endswith(b"\n"))
    if offset > count:
        raise FileError(f"{path} has {count} lines", f"offset is at most {count}")
    final = count if limit is None else min(count, offset - 1 + limit)
    shown: list[bytes] = []
    size, place = 0, _start(data, offset - 1)
    while offset + len(shown) <= final:
        end = data.find(b"\n", place)
        end = len(data) if end < 0 else end
        size += end - place + 1
        if size > most and shown:
            break
        shown.append(data[place:end])
        place = end + 1
    notes = []
    if len(shown[0]) > most:
        notes.append(f"line {offset} has {len(shown[0])} bytes, of which the first {most} are shown")
        shown[0] = shown[0][:most]
    last = offset + len(shown) - 1
    if offset > 1 or last < count:
        more = f"; read on with offset={last + 1}" if last < count else ""
        notes.append(f"lines {offset} to {last} of {count}{more}")
    text = b"\n".join(shown).decode("utf-8", "replace")
    return "\n".join((text, *(f"[{note}]" for note in notes))) if notes else text


def write_file(tree: Tree, path: str, content: str) -> str:
    """Put a text in a file, new or not; directories that are missing are made. Raises FileError."""
    data = _encoded(content, "content")
    with tree.locate(path, create=True) as found:
        tree.write(found, path, data)
        how = "made" if found.status is None else "replaced"
    return f"{how} {path}, {len(data)} bytes"


def edit_file(tree: Tree, path: str, old_text: str, new_text: str) -> str:
    """Replace a text that is in a file exactly once by another. Raises FileError."""
    old, new = _encoded(old_text, "old_text"), _encoded(new_text, "new_text")
    if not old:
        raise FileError("old_text is empty", "write_file makes a file, or replaces all of it")
    if old == new:
        raise FileError("old_text and new_text are the same")
    with tree.locate(path) as found:
        if found.status is None:
            raise FileError(f"{path}: no such file or directory", "write_file makes a file")
        data = tree.content(found, path)
        _check_text(path, data)
        places = _places(data, old)
        if not places:
            remedy = "it has to match exactly, with all its spaces: read the file again"
            raise FileError(f"old_text is not in {path}", remedy)
        lines = [data.count(b"\n", 0, place) + 1 for place in places[:_SHOWN]]
        if len(places) > 1:
            where = ", ".join(map(str, lines)) + (", …" if len(places) > _SHOWN else "")
            raise FileError(
                f"old_text is {len(places)} times in {path}, at lines {where}",
                "add lines around the one that is meant, so that it is there once",
            )
        tree.write(found, path, data[: places[0]] + new + data[places[0] + len(old) :])
    return f"edited {path} at line {lines[0]}"


def _start(data: bytes, ends: int) -> int:
    """Return where the line begins that comes after so many ends of lines, which have to be there.

    A list of all lines would take many times the memory of the file, and whoever writes it chooses how many.
    """
    place = 0
    while (there := data.count(b"\n", place, place + _STEP)) < ends:
        ends -= there
        place += _STEP
    for _ in range(ends):
        place = data.index(b"\n", place) + 1
    return place


def _places(data: bytes, old: bytes) -> list[int]:
    """Return where a text begins, overlapping places too: which one is meant would be a guess."""
    found: list[int] = []
    place = data.find(old)
    while place >= 0 and len(found) < 1000:
        found.append(place)
        place = data.find(old, place + 1)
    return found


def _check_text(path: str, data: bytes) -> None:
    if b"\0" in data[:_LOOKED_AT]:
        raise FileError(f"{path} is not text: {len(data)} bytes", "programs can read and write it")


def _encoded(text: str, name: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise FileError(f"{name} has half of a surrogate pair, which is no character") from None
