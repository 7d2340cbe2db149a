"""Logs: files of JSON objects, one on each line, of which some lines may be damaged."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def read(
    places: Iterable[str], most: int, is_entry: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Return the entries of files that belong together, the oldest first; some may be missing.

    ``most`` bytes of each are read. Lines that are no entry are left out. Raises OSError.
    """
    found = []
    for place in places:
        try:
            with open(place, "rb") as file:
                lines = file.read(most).splitlines()
        except FileNotFoundError:
            continue
        for line in lines:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict) and is_entry(entry):
                found.append(entry)
    return found
