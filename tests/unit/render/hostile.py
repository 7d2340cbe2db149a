"""Commands that a Dockerfile, JSON or a shell could garble, and what each has to leave behind.

Each command writes one file at the root of the image's file system, with no more than a
POSIX shell and cat. A builder that expands, strips, splits or reads on leaves something else.
"""

from __future__ import annotations

from coopfile.record import Record


class Hostile(Record):
    """A command of ``setup.run``, and the content of the file ``/<name>`` that it has to write."""

    name: str
    command: str
    content: bytes


# Ends in another command, for the last one may take the shell's place.
_WITNESS = "\ncat /proc/$$/cmdline >/{}\n:"


def _argument(name: str, text: str) -> Hostile:
    """Return a command that writes down the arguments of its shell, and so itself."""
    command = text + _WITNESS.format(name)
    return Hostile(name, command, b"/bin/sh\0-c\0--\0" + command.encode() + b"\0")


HOSTILE = (
    Hostile("single-quotes", """printf %s 'a"b' "c'd" >/single-quotes""", b"""a"bc'd"""),
    Hostile("backslashes", r"printf %s 'a\b\\c\\\d\n\t' >/backslashes", rb"a\b\\c\\\d\n\t"),
    Hostile("trailing-backslash", "printf %s x >/trailing-backslash; : \\", b"x"),
    Hostile("trailing-backslashes", ": >/trailing-backslashes; : \\\\", b""),
    Hostile("trailing-blank", "printf %s x >/trailing-blank \\ \t ", b"x "),
    Hostile("shell-continues", "printf %s a\\\nb >/shell-continues", b"ab"),
    Hostile("newlines", "printf '[%s]' 'a\n\n  b\t\n' >/newlines\n", b"[a\n\n  b\t\n]"),
    Hostile("first-newline", "\n\nprintf x >/first-newline", b"x"),
    Hostile("shell-expands", r"""A=1; printf %s "$A${A}$(printf 2)`printf 3`" >/shell-expands""", b"1123"),
    Hostile(
        "not-expanded",
        "printf %s '$A ${PATH} $(id) `id` \\$A $$' >/not-expanded",
        b"$A ${PATH} $(id) `id` \\$A $$",
    ),
    Hostile("default-value", 'printf %s "${NOT_SET:-a b}" >/default-value', b"a b"),
    Hostile("here-document", "cat >/here-document <<EOF\na $((1+1))\nRUN false\nEOF", b"a 2\nRUN false\n"),
    Hostile("quoted-here-document", "cat >/quoted-here-document <<-'E O'\n\t$A\n\tE O\n", b"$A\n"),
    Hostile("shift", "printf %s $((1<<3)) '<<EOF' '<<<<' >/shift", b"8<<EOF<<<<"),
    Hostile("comment", "# a comment\nprintf %s '#' >/comment # RUN false", b"#"),
    Hostile(
        "instruction",
        "printf %s 'x\nRUN false\nFROM scratch\n' >/instruction",
        b"x\nRUN false\nFROM scratch\n",
    ),
    Hostile("directive", "# syntax=example.invalid/x\n# escape=`\nprintf x >/directive", b"x"),
    Hostile("json", """printf %s '"] , ["x", "\\u0041\\"]' >/json""", b""""] , ["x", "\\u0041\\"]"""),
    Hostile("template", "printf %s '{{ base }}{% raw %}{# x #}' >/template", b"{{ base }}{% raw %}{# x #}"),
    Hostile("globs", "set -f; printf %s * ? [a] >/globs", b"*?[a]"),
    Hostile("html", "printf %s '<a href=\"x\">&amp;</a>' >/html", b'<a href="x">&amp;</a>'),
    Hostile("percent", "printf %s '%s%%d %PATH% !x!' >/percent", b"%s%%d %PATH% !x!"),
    Hostile(
        "flags", "printf %s '--mount=type=bind --network=host' >/flags", b"--mount=type=bind --network=host"
    ),
    Hostile(
        "non-ascii",
        "printf %s 'grüße 世界 \U0001f600 e\u0301 \u00a0' >/non-ascii",
        "grüße 世界 \U0001f600 e\u0301 \u00a0".encode(),
    ),
    Hostile("line-separators", "printf %s 'a\u2028b\u2029c' >/line-separators", "a\u2028b\u2029c".encode()),
    Hostile("leading-blanks", " \t printf x >/leading-blanks", b"x"),
    # Not options of the shell: names of programs that are not there.
    Hostile("leading-dash", "-c 2>/dev/null; printf x >/leading-dash", b"x"),
    Hostile("leading-plus", "+x 2>/dev/null; printf x >/leading-plus", b"x"),
    _argument("argument", "# ' \" \\ $A ${B} `c` \\\\ <<EOF # \\n \\u0041 ] [ , é\n\t # \\"),
    _argument("long", ": '" + "x" * 100_000 + "'"),
    _argument("long-comments", ": '" + "#" * 20_000 + "\n # \\\n" * 5_000 + "'"),
    _argument("long-backslashes", ": '" + "\\" * 70_000 + "'"),
    _argument("long-blanks", ": '" + " \t\n" * 20_000 + "'"),
    _argument("long-here", ": '" + "<" * 30_000 + "'"),
    _argument("long-wide", ": '" + "\U0001f600" * 25_000 + "'"),
    _argument("longest", "#" + "y" * (131_070 - len(_WITNESS.format("longest")))),
)

# What these do does not depend on where in a command they stand.
_ANYWHERE = frozenset(
    (
        *("single-quotes", "backslashes", "shell-continues", "shell-expands", "not-expanded"),
        *("default-value", "shift", "json", "template", "html", "percent", "flags"),
        *("non-ascii", "line-separators"),
    )
)
# For what makes and unmakes the text; to a builder they are the same as the other long ones.
_OTHER_LONG = frozenset(("long", "long-backslashes", "long-blanks", "long-here", "long-wide"))


def for_builders() -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Return as few commands as pose all the same questions to a builder, and the files that they leave."""
    alone = [hostile for hostile in HOSTILE if hostile.name not in _ANYWHERE | _OTHER_LONG]
    together = [hostile for hostile in HOSTILE if hostile.name in _ANYWHERE]
    commands = ("\n".join(hostile.command for hostile in together), *(hostile.command for hostile in alone))
    return commands, {hostile.name: hostile.content for hostile in (*together, *alone)}
