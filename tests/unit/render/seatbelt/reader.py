"""A reader of SBPL's s-expressions, as strict as sandbox-exec is said to be."""

from __future__ import annotations

LITERAL_MAX = 1025  # bytes


class Symbol(str):
    """A bare word; strings are plain ``str``."""


class UnreadableError(Exception):
    """The text is not a sequence of s-expressions."""


def read(text: str) -> list[object]:
    """Return the forms of a profile: lists, strings, symbols and booleans."""
    forms: list[object] = []
    position = 0
    while True:
        position = _skip(text, position)
        if position == len(text):
            return forms
        form, position = _form(text, position)
        forms.append(form)


def _skip(text: str, position: int) -> int:
    while position < len(text):
        if text[position] in " \t\n":
            position += 1
        elif text[position] == ";":
            end = text.find("\n", position)
            position = len(text) if end < 0 else end + 1
        elif text.startswith("#|", position):
            end = text.find("|#", position + 2)
            if end < 0:
                raise UnreadableError("a comment has no end")
            position = end + 2
        else:
            break
    return position


def _form(text: str, position: int) -> tuple[object, int]:
    character = text[position : position + 1]
    if character == "(":
        return _list(text, position + 1)
    if character == '"':
        return _string(text, position + 1)
    if text.startswith('#"', position):
        end = text.find('"', position + 2)
        if end < 0:
            raise UnreadableError("a raw string has no end")
        return _checked(text[position + 2 : end]), end + 1
    if character in ("", ")"):
        raise UnreadableError(f"no form at {position}")
    end = position
    while end < len(text) and text[end] not in ' \t\n()";':
        end += 1
    word = text[position:end]
    if word in ("#t", "#f"):
        return word == "#t", end
    if not word or not all(part.isalnum() or part in "-*_" for part in word) or not word.isascii():
        raise UnreadableError(f"not a symbol: {word!r}")
    return Symbol(word), end


def _list(text: str, position: int) -> tuple[list[object], int]:
    forms: list[object] = []
    while True:
        position = _skip(text, position)
        if text[position : position + 1] == ")":
            return forms, position + 1
        form, position = _form(text, position)
        forms.append(form)


def _string(text: str, position: int) -> tuple[str, int]:
    start = position
    characters: list[str] = []
    while position < len(text):
        character = text[position]
        if character == '"':
            _checked(text[start:position])
            return "".join(characters), position + 1
        if character == "\\":
            position += 1
            character = text[position : position + 1]
            if character not in ("\\", '"'):
                raise UnreadableError(f"an escape that not all readers know: \\{character}")
        characters.append(character)
        position += 1
    raise UnreadableError("a string has no end")


def _checked(literal: str) -> str:
    if len(literal.encode()) > LITERAL_MAX:
        raise UnreadableError("Error reading string")
    if not literal.isprintable() and any(ord(character) < 0x20 for character in literal):
        raise UnreadableError("a control character in a string")
    return literal
