"""Paths and globs as SBPL, the language of Seatbelt's profiles.

The kernel matches the real path of a file with the text of a filter, and does not
tidy up the filter: one with ``//`` or a link in it matches nothing. So only real,
normal paths become filters. Regular expressions are POSIX extended ones: a group is
``(…)``, and one that begins with ``(?:`` silently matches nothing.
"""

from __future__ import annotations

import posixpath
import unicodedata

from coopfile.errors import CoopError
from coopfile.plan.launch import inside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# sandbox-exec refuses the whole profile for a string literal of more than 1025 bytes.
LITERAL_MAX = 900

_SPECIAL = frozenset("\\.^$*+?()[]{}|")

# Characters that stand for several others where a volume ignores case.
_LIGATURES = {
    "ffi": "\ufb03",
    "ffl": "\ufb04",
    "ff": "\ufb00",
    "fi": "\ufb01",
    "fl": "\ufb02",
    "ss": "\u00df\u1e9e",
    "st": "\ufb05\ufb06",
}
_FOLDED = {"k": "\u212a", "s": "\u017f"}


def quote(text: str) -> str:
    """Return an expression whose value is the text: a string literal, or several appended.

    Raises CoopError for control characters, which SBPL has no way to write.
    """
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise CoopError(
            f"{text!a} cannot stand in a Seatbelt profile: it has a control character, or is not UTF-8",
            "rename it, or use another back end",
        )
    chunks, size = [""], 0
    for character in text:
        escaped = f"\\{character}" if character in '\\"' else character
        size += len(escaped.encode())
        if size > LITERAL_MAX:
            chunks.append("")
            size = len(escaped.encode())
        chunks[-1] += escaped
    literals = " ".join(f'"{chunk}"' for chunk in chunks)
    return literals if len(chunks) == 1 else f"(string-append {literals})"


class Writer:
    """Writes paths as expressions, relative to the profile's parameters where they are below one."""

    def __init__(self, parameters: Mapping[str, str]) -> None:
        for path in parameters.values():
            _check(path)
        self._parameters = sorted(parameters.items(), key=lambda item: -len(item[1]))

    def path(self, path: str) -> str:
        """Return an expression whose value is an absolute path."""
        _check(path)
        for name, root in self._parameters:
            if path == root:
                return f'(param "{name}")'
            if inside(path, root):
                return f'(string-append (param "{name}") {quote(path[len(root) :])})'
        return quote(path)

    def pattern(self, root: str, expression: str) -> str:
        """Return an expression whose value is a regular expression for what is below a directory."""
        prefix = self.path(root)
        return f'(string-append "^" (regex-quote {prefix}) {quote("/" + expression)})'


def _check(path: str) -> None:
    quote(path)
    if not path.startswith("/") or posixpath.normpath(path) != path or path.startswith("//"):
        raise CoopError(f"{path!r} is not a real path, and a Seatbelt rule about it would match nothing")


def name_pattern(path: str, tail: str = "(/.*)?$") -> str:
    """Return a regular expression for a relative path in any case and normal form.

    Volumes of macOS mostly ignore both: where ``.git`` is missing, ``.GIT`` is as good.
    """
    return _any_case(path) + tail


def glob_pattern(glob: str) -> str:
    """Return a regular expression for what a glob of ``files.hide`` matches, and all below it.

    Letters are matched in any case. A set or ``?`` is one byte in some readings of
    regular expressions: what exists at the launch is hidden by its name too.
    """
    return "".join(_glob(glob)) + "(/.*)?$"


def _glob(glob: str) -> Iterator[str]:
    position, plain = 0, ""
    while position < len(glob):
        end = position + 1
        if glob.startswith("**/", position):
            found, end = "(.*/)?", position + 3
        elif glob.startswith("**", position):
            found, end = ".*", position + 2
        elif glob[position] == "*":
            found = "[^/]*"
        elif glob[position] == "?":
            found = "[^/]"
        elif glob[position] == "[" and (close := glob.find("]", position + 2)) > 0:
            found, end = _set(glob[position + 1 : close]), close + 1
        else:
            plain += glob[position]
            position = end
            continue
        yield _any_case(plain)
        yield found
        position, plain = end, ""
    yield _any_case(plain)


def _set(members: str) -> str:
    """Return a bracket expression; in one, a backslash is itself and the order decides what is special."""
    negated = members[0] in "!^"
    ranges = list(_ranges(members[negated:]))
    if negated:
        # A set never stands for a slash; and whatever case is meant, more is hidden.
        ranges.append(("/", "/"))
    else:
        ranges = [part for low, high in ranges for part in _without_slash(low, high)]
        ranges += [(low.swapcase(), high.swapcase()) for low, high in ranges if _letters(low, high)]
    # A range that begins with "^" could come first, too.
    ranges += [("^", "^") for low, high in ranges if low == "^" < high]
    ranges = [("_", high) if low == "^" < high else (low, high) for low, high in ranges]
    singles = dict.fromkeys(low for low, high in ranges if low == high)
    last = "".join(character for character in "^-" if character in singles)
    inner = "".join(character for character in singles if character not in "^-")
    inner += "".join(f"{low}-{high}" for low, high in ranges if low != high)
    if not negated and not inner and last.startswith("^"):
        return "[-^]" if "-" in last else "\\^"
    return f"[{'^' if negated else ''}{inner}{last}]"


def _ranges(members: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(members):
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            yield members[position], members[position + 2]
            position += 3
        else:
            yield members[position], members[position]
            position += 1


def _without_slash(low: str, high: str) -> Iterator[tuple[str, str]]:
    if low <= "/" <= high:
        if low < "/":
            yield low, "."
        if high > "/":
            yield "0", high
    else:
        yield low, high


def _letters(low: str, high: str) -> bool:
    return any(all(first <= end <= last for end in (low, high)) for first, last in ("az", "AZ"))


def _any_case(text: str) -> str:
    text, position, parts = unicodedata.normalize("NFC", text), 0, []
    while position < len(text):
        token = next((t for t in _LIGATURES if text[position : position + len(t)].lower() == t), None)
        if token is None:
            end = position + 1
            while end < len(text) and unicodedata.combining(text[end]):
                end += 1
            parts.append(_character(text[position:end]))
            position = end
        else:
            parts.append(f"({'|'.join(_spellings(token))})")
            position += len(token)
    return "".join(parts)


def _spellings(token: str) -> Iterator[str]:
    if not token:
        yield ""
        return
    for rest in _spellings(token[1:]):
        yield _character(token[0]) + rest
    for letters, characters in _LIGATURES.items():
        if token.startswith(letters):
            for rest in _spellings(token[len(letters) :]):
                yield from (character + rest for character in characters)


def _character(character: str) -> str:
    """Return an expression for a character, with its combining marks, in any case and normal form."""
    spelled = {character, character.lower(), character.upper()}
    forms = {unicodedata.normalize(form, text) for text in spelled for form in ("NFC", "NFD")}
    forms.update(_FOLDED.get(character.lower(), ""))
    if len(forms) > 1 and all(form.isascii() and len(form) == 1 for form in forms):
        return f"[{''.join(sorted(forms, reverse=True))}]"
    # Not a set: in it, a character of several bytes may count as that many characters.
    escaped = sorted("".join(f"\\{one}" if one in _SPECIAL else one for one in form) for form in forms)
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
