"""Guessing what was meant: the nearest of the words that would have been right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from coopfile.language.diagnostics import quoted


def nearest(word: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the candidate that ``word`` is most likely a misspelling of, if any."""
    folded = {candidate.lower(): candidate for candidate in candidates}
    found = difflib.get_close_matches(word[:64].lower(), list(folded), n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def did_you_mean(word: str, candidates: Iterable[str]) -> str | None:
    """Return the question ``did you mean "…"?``, or None when nothing is near."""
    found = nearest(word, candidates)
    return f"did you mean {quoted(found)}?" if found else None
