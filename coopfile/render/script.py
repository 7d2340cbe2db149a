"""Argv as text to be pasted into a POSIX shell, or saved and run by one.

What a shell is told is exact: printable characters stand as they are, between single
quotes where they have to, and all others, such as ESC, as octal bytes for ``printf``.
So what people see is what is run, and no terminal acts on any of it.
"""

from __future__ import annotations

import base64
import re

from coopfile.language.diagnostics import visible
from coopfile.render.steps import INHERITING, STARTING
from coopfile.render.windows import MSYS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coopfile.plan.launch import Weakening
    from coopfile.render.steps import Rendering

STEPS = ("run", "keep", "exec", "stop", "remove", "commit", "build")

# zsh takes `=` at the beginning of a word for the path of a program.
_PLAIN = re.compile(r"[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*")


def quote(text: str) -> str:
    r"""Return a word that every POSIX shell reads as ``text``, in printable characters and newlines."""
    if _PLAIN.fullmatch(text):
        return text
    parts, run = [], ""
    for kind, characters in _runs(text):
        if kind:
            run = characters.replace("'", "'\"'\"'")
            parts.append(f"'{run}'")
        else:
            octal = "".join(f"\\{byte:03o}" for byte in characters.encode("utf-8", "surrogateescape"))
            parts.append(f"\"$(printf '{octal}')\"")
    return "".join(parts) or "''"


def _runs(text: str) -> Iterable[tuple[bool, str]]:
    """Yield (can be shown, characters) for the longest runs of either kind."""
    start = 0
    kinds = [_shows(character) for character in text]
    for position in range(1, len(text) + 1):
        if position == len(text) or kinds[position] != kinds[start]:
            yield kinds[start], text[start:position]
            start = position


def _shows(character: str) -> bool:
    return character == "\n" or character.isprintable()


def command(argv: Sequence[str], tail: int = 0) -> str:
    """Return an argv as one command, an option to a line; its last ``tail`` words share one."""
    lines: list[str] = []
    for position, word in enumerate(argv):
        rest = len(argv) - position
        value = position > 0 and argv[position - 1].startswith("-")
        option = (word.startswith("-") and word != "-") or ("=" in word and not value)
        quoted = quote(word)
        if not lines or rest == tail or (option and rest > tail):
            lines.append(quoted)
        else:
            lines[-1] += f" {quoted}"
    return " \\\n  ".join(lines)


def here_document(text: str, name: str) -> tuple[str, str]:
    """Return (the redirection, the lines after the command) that give a text on standard input."""
    lines, delimiter, number = set(text.splitlines()), name, 0
    while delimiter in lines:
        number += 1
        delimiter = f"{name}_{number}"
    end = "\n" if text and not text.endswith("\n") else ""
    return f"<<'{delimiter}'", f"{text}{end}{delimiter}\n"


def notes(lines: Iterable[str]) -> str:
    """Return lines that a shell skips: a here-document that looks like a comment.

    An interactive zsh knows no comments: it would run what they say, and parts of them
    come from the plan.
    """
    return ": <<'#'\n" + "".join(f"# {visible(line)}\n" for line in lines) + "#\n"


def described(
    weakenings: Iterable[Weakening], holes: Iterable[Weakening], skipped: Iterable[str]
) -> list[str]:
    """Return what people have to know before they paste, a line each."""
    lines = []
    for label, found in (("GIVES MORE THAN THE PLAN", holes), ("weaker than the plan", weakenings)):
        for item in found:
            remedy = f" (instead: {item.remedy})" if item.remedy else ""
            lines.append(f"{label}: {item.key}: {item.text}{remedy}")
    return lines + [f"skipped: {text}" for text in skipped]


def script(rendering: Rendering, step: str = "run", remarks: Iterable[str] = ()) -> str:
    """Return the text of a step, with what it needs before it: its image, and what hides paths.

    ``remarks`` are more lines for people.
    """
    head = [
        f"coop: {step} with {rendering.backend}, isolation {rendering.isolation}",
        f"plan {rendering.plan}",
    ]
    if rendering.system == "windows":
        head.append("for Git Bash; other shells: give them the argv of --json")
    if step == "commit":
        head.append("the root file system is read-only: an image of it is what the container began with")
    if step == "commit" and len(rendering.commit) > 1:
        head.append("an export has the files alone: PATH, user and entry point of the image are not kept")
    parts = [notes([*head, *remarks, *described(rendering.weakenings, rendering.holes, rendering.skipped)])]
    if step in STARTING and rendering.masks is not None:
        parts.append(_masks(rendering))
    if step in STARTING and rendering.kept:
        parts.append(_kept(rendering))
    if step in STARTING or step == "build":
        parts.append(_image(rendering))
    if step == "commit":
        parts += _commit(rendering)
    elif step != "build":
        variables = rendering.variables if step in INHERITING else ()
        prefix = _prefix(rendering) + "".join(f'{name}="${{{host}?}}" ' for name, host in variables)
        argv = rendering.step(step)
        subject = rendering.image.reference if step in STARTING else rendering.name
        parts.append(f"{prefix}{command(argv, _tail(argv, subject))}\n")
    return "\n".join(parts)


def seatbelt(
    lines: Iterable[str],
    profile: tuple[str, str] | None,
    directory: str,
    argv: Sequence[str],
    tail: int,
) -> str:
    """Return the text that writes a profile (path, text) and runs a command under it in a directory.

    The last ``tail`` words of ``argv`` are the command; ``lines`` are for people.
    """
    parts = [notes(lines)]
    if profile is not None:
        path, text = profile
        redirection, rest = here_document(text, "PROFILE")
        holder, file = (quote(place) for place in (path.rpartition("/")[0] or "/", path))
        parts.append(f"mkdir -p {holder} && cat >|{file} {redirection}\n{rest}")
    started = command(argv, tail)
    parts.append(f"( cd {quote(directory)} && exec {started} )\n")
    return "\n".join(parts)


def _tail(argv: Sequence[str], subject: str) -> int:
    """Return how many words the image or the container, and the command after it, are."""
    return len(argv) - argv.index(subject) if subject in argv else 0


def _prefix(rendering: Rendering) -> str:
    return "".join(f"{name}={quote(value)} " for name, value in MSYS) if rendering.system == "windows" else ""


def _masks(rendering: Rendering) -> str:
    assert rendering.masks is not None
    place = _in_shell(rendering, rendering.masks)
    file, directory = (quote(f"{place}/{name}") for name in ("file", "directory"))
    return (
        f"mkdir -p {directory} && {{ [ -e {file} ] || : >{file}; }} \\\n  && chmod 000 {file} {directory}\n"
    )


def _kept(rendering: Rendering) -> str:
    places = " \\\n  ".join(quote(_in_shell(rendering, path)) for path in rendering.kept)
    return f"( umask 077 && mkdir -p \\\n  {places} )\n"


def _in_shell(rendering: Rendering, path: str) -> str:
    return path.replace("\\", "/") if rendering.system == "windows" else path


def _commit(rendering: Rendering) -> list[str]:
    """Return the commands, each after the one before has succeeded, and the removal of what they leave."""
    text, rest = "", ""
    for number, one in enumerate(rendering.commit):
        joined = " \\\n  && " if number else ""
        text += f"{joined}{_prefix(rendering)}{command(one.argv)}"
        if one.stdin is not None:
            redirection, lines = here_document(one.stdin, "DOCKERFILE")
            text += f" {redirection}"
            rest += lines
    if not rendering.directories:
        return [f"{text}\n{rest}"]
    holder = quote(rendering.directories[-1])
    return [f"mkdir -p {holder} \\\n  && {text}\n{rest}", f"rm -r {holder}\n"]


def _image(rendering: Rendering) -> str:
    image, prefix = rendering.image, _prefix(rendering)
    present = " ".join(quote(word) for word in image.present)
    wanted = f"{prefix}{present} >/dev/null 2>&1 || "
    text = command(image.argv)
    if image.stdin is None:
        return f"{wanted}{prefix}{text}\n"
    if isinstance(image.stdin, bytes):
        redirection, lines = here_document(base64.encodebytes(image.stdin).decode("ascii"), "ARCHIVE")
        return f"{wanted}base64 -d {redirection} | {prefix}{text}\n{lines}"
    redirection, lines = here_document(image.stdin, "DOCKERFILE")
    if rendering.directories:
        wanted = f"mkdir -p {quote(rendering.directories[0])}\n\n{wanted}"
    return f"{wanted}{prefix}{text} {redirection}\n{lines}"
