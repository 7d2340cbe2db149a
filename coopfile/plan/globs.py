"""Globs of ``files.hide`` as one regular expression."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def translate(glob: str) -> str:
    """Return the regular expression that a whole relative path has to match.

    A glob without a slash is about paths right below the root; ``**/`` in front makes
    it about every depth.
    """
    from re import escape

    pattern, position = "", 0
    while position < len(glob):
        if glob.startswith("**/", position):
            pattern, position = pattern + "(?:[^/]+/)*", position + 3
        elif glob.startswith("**", position):
            pattern, position = pattern + ".*", position + 2
        elif glob[position] == "*":
            pattern, position = pattern + "[^/]*", position + 1
        elif glob[position] == "?":
            pattern, position = pattern + "[^/]", position + 1
        elif glob[position] == "[" and (end := glob.find("]", position + 2)) > 0:
            inside = glob[position + 1 : end]
            negated = inside[0] in "!^"
            body = inside[1:] if negated else inside
            body = body.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("&&", "&\\&")
            body = body.replace("^", "\\^")
            pattern, position = pattern + f"(?!/)[{'^' if negated else ''}{body}]", end + 1
        else:
            pattern, position = pattern + escape(glob[position]), position + 1
    return pattern


def compile_globs(globs: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that tells whether any of the globs matches a relative path."""
    import re

    expression = re.compile("|".join(f"(?:{translate(glob)})" for glob in globs), re.DOTALL)
    return lambda path: expression.fullmatch(path) is not None
