"""The audit log: what was run for whom, as JSON lines of one file for each project, bounded by rotation.

It lies in coop's own state, which no sandbox sees. Values that the plan takes from the host's
environment are never in it, wherever in a command they stand. On the path of a cached run.
"""

from __future__ import annotations

import fcntl
import os
import time

from coopfile.errors import CoopError, UsageError
from coopfile.find import directories
from coopfile.plan.sessions import project_id
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from coopfile.plan.model import Plan

_MOST_BYTES = 1 << 20  # of a file; there are this many:
_FILES = 4
_LONGEST = 4096  # characters of a command
_SHORT = 4  # characters; a value with fewer counts where it stands alone
NOTE = "audited"  # a session's file of what its commands have in common
_LARGEST_NOTE = 1 << 20  # bytes
# What a shell takes as it is; the rest is quoted.
_PLAIN = frozenset("%+,-./0123456789:=@ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz")

FIELDS = (
    "time",
    "kind",
    "identity",
    "user",
    "trust",
    "place",
    "tool",
    "command",
    "plan",
    "backend",
    "decision",
    "result",
    "duration",
)


class Audit:
    """Writes what was called. Safe from several threads and processes."""

    def __init__(self, path: str, *secrets: Mapping[str, str]) -> None:
        """``secrets`` are values that must not be written, by the names that stand for them instead."""
        self._path = path
        every = [item for named in secrets for item in named.items()]
        self._secrets = sorted(every, key=lambda item: len(item[1]), reverse=True)

    def open(self) -> int:
        """Open the file for one call, before it is made: what cannot be written down is not to happen.

        Raises CoopError.
        """
        try:
            return _opened(self._path)
        except OSError as error:
            raise CoopError(_unwritable(self._path, error), "without it nothing is run") from None

    def write(self, descriptor: int, **facts: object) -> None:
        """Write one call; facts are of ``FIELDS``, and None where there are none. Raises OSError."""
        facts.setdefault("time", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        facts.setdefault("kind", "call")
        entry = ", ".join(f'"{name}": {_json(self._clean(facts.get(name)))}' for name in FIELDS)
        line = f"{{{entry}}}\n".encode("ascii")
        # When the disk was full, the last line may have no end. An empty one does not count.
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)  # one call: lines do not mix

    def command(self, argv: Sequence[str]) -> str:
        """Return a command as one would give it to a shell, without secrets, and of what is written."""
        words, length = [], 0
        for word in argv:
            if length > _LONGEST:
                break
            words.append(_quoted(self.without_secrets(word)))  # quoted, it might hide one
            length += len(words[-1])
        return " ".join(words)

    def _clean(self, fact: object) -> object:
        if not isinstance(fact, str):
            return fact
        text = self.without_secrets(fact)
        return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"

    def without_secrets(self, text: str) -> str:
        """Return a text in which secrets are replaced by their names."""
        for name, value in self._secrets:
            if len(value) >= _SHORT:
                text = text.replace(value, f"<{name}>")
            elif value:
                text = _replace_alone(text, value, f"<{name}>")
        return text


class About(Record):
    """What the lines of one sandbox have in common: whose it is, and under what it runs.

    ``plan`` is the plan's digest. ``variables`` are names of the plan's with those of the host's variables
    that they have their values of.
    """

    plan: str | None = None
    user: str | None = None
    trust: str | None = None
    place: str = "direct"
    variables: tuple[tuple[str, str], ...] = ()


class Entry:
    """One command of `coop run`, `shell`, `exec` or the Python API, from its beginning to its line.

    What is found out meanwhile is set: ``about`` and ``backend``; ``secrets`` returns those of a session that
    may have them of another process than this, or None, which has the command's arguments left out.
    """

    def __init__(self, tool: str, root: str, argv: Sequence[str], identity: str | None = None) -> None:
        self.about = About()
        self.backend: str | None = None
        self.secrets: Callable[[], Mapping[str, str] | None] = dict
        self.argv = argv
        self.written = False
        self._tool = tool
        self._path = path(root, os.environ)
        self._identity = identity
        self._began = time.monotonic()
        self._descriptor: int | None = None

    def known(self, plan: Plan, digest: str | None) -> None:
        """Take notice of the plan; without its digest, that is found out where it is needed."""
        if digest is None:
            from coopfile.plan import canonical

            digest = canonical.digest(plan)
        self.about = about(plan, digest)

    def open(self) -> None:
        """Open the log before the command is run. Raises CoopError."""
        self._descriptor = Audit(self._path).open()

    def ended(self, status: int, *, timed_out: bool = False) -> None:
        """Write down how the command has ended."""
        self._write("allowed", "timed out" if timed_out else f"status {status}")

    def failed(self, error: BaseException) -> None:
        """Write down that the command was refused, or that it is not known how it ended.

        That something is wrong with a Coopfile, or with the command line, is no decision.
        """
        plan, decision = getattr(error, "plan", None), getattr(error, "decision", None)
        if plan is not None:
            self.known(plan, None)
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            self.ended(error.code)
        elif decision or (self.about.plan is not None and not isinstance(error, UsageError)):
            cancelled = not isinstance(error, Exception)
            self._write(decision or "allowed", "cancelled" if cancelled else "error")
        self.close()

    def close(self) -> None:
        """Let go of the log."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, decision: str, result: str) -> None:
        """Write the line. That it cannot be is told, for the command has been run already."""
        self.written = True
        about = self.about
        own = secrets_of(about, os.environ)
        more = self.secrets()
        log = Audit(self._path, own, more or {})
        try:
            if self._descriptor is None:
                self._descriptor = _opened(self._path)
            log.write(
                self._descriptor,
                kind="command",
                identity=self._identity,
                user=about.user,
                trust=about.trust,
                place=about.place,
                tool=self._tool,
                command=self._shown(log, whole=more is not None),
                plan=about.plan,
                backend=self.backend,
                decision=decision,
                result=result,
                duration=round(time.monotonic() - self._began, 3),
            )
        except OSError as error:
            from coopfile import startup

            startup.tell(f"coop: {_unwritable(self._path, error)}: this command is not in it\n")
        finally:
            self.close()

    def _shown(self, log: Audit, *, whole: bool) -> str | None:
        if not self.argv:
            return None
        if whole or len(self.argv) == 1:
            return log.command(self.argv)
        return log.command(self.argv[:1]) + " (its arguments may hold secrets)"


def about(plan: Plan, digest: str | None) -> About:
    """Return what lines about sandboxes of a plan have in common."""
    access = plan.access
    variables = tuple((item.name, item.host) for item in plan.env if item.host is not None)
    if access is None:
        return About(digest, variables=variables)
    return About(digest, access.user, access.trust, access.place, variables)


def note(directory: str, about: About) -> None:
    """Keep in a session's directory what its commands have in common. Raises OSError.

    The machine's end is that of all sessions: what is damaged then is of one that has ended.
    """
    from coopfile import wholefile

    words = [
        about.plan,
        about.user,
        about.trust,
        about.place,
        *(word for pair in about.variables for word in pair),
    ]
    text = "\0".join("" if word is None else word.replace("\0", "") for word in words)
    wholefile.write(f"{directory}/{NOTE}", os.fsencode(text), 0o600, durable=False)


def noted(directory: str) -> About | None:
    """Return what a session's commands have in common; None if that is not known."""
    try:
        descriptor = os.open(
            f"{directory}/{NOTE}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return None
    try:
        words = os.fsdecode(os.read(descriptor, _LARGEST_NOTE)).split("\0")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(words) < 4 or len(words) % 2:
        return None
    plan, user, trust, place, *rest = words
    return About(
        plan or None, user or None, trust or None, place, tuple(zip(rest[::2], rest[1::2], strict=True))
    )


def secrets_of(about: About, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the values that must not be written, where a sandbox has them of this environment."""
    found = {name: environment.get(host, "") for name, host in about.variables}
    return {name: value for name, value in found.items() if value}


def for_project(plan: Plan, root: str, environment: Mapping[str, str], *secrets: Mapping[str, str]) -> Audit:
    """Return the log of a project; ``secrets`` are more than those that this environment has."""
    return Audit(path(root, environment), secrets_of(about(plan, None), environment), *secrets)


def path(root: str, environment: Mapping[str, str]) -> str:
    """Return where the log of a project is, whoever calls."""
    return f"{directories(environment).state}/audit/{project_id(root, None)}.jsonl"


def read(place: str) -> list[dict[str, Any]]:
    """Return what the files of a log hold, the oldest first; damaged lines are left out. Raises OSError."""
    from coopfile import jsonlines

    places = (*(f"{place}.{number}" for number in range(_FILES - 1, 0, -1)), place)
    return jsonlines.read(places, 2 * _MOST_BYTES, lambda entry: set(FIELDS) <= entry.keys())


def _opened(place: str) -> int:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            descriptor = os.open(place, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
            descriptor = os.open(place, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size < _MOST_BYTES:
                return descriptor
            _rotate(place, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _rotate(place: str, descriptor: int) -> None:
    """Move the files on by one, unless another process has just done it."""
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        if not os.path.samestat(os.fstat(descriptor), os.stat(place)):
            return
    except FileNotFoundError:
        return
    for number in range(_FILES - 1, 0, -1):
        older = place if number == 1 else f"{place}.{number - 1}"
        try:
            os.replace(older, f"{place}.{number}")
        except FileNotFoundError:
            pass


def _unwritable(place: str, error: OSError) -> str:
    return f"the audit log cannot be written: {place}: {error.strerror}"


def _json(value: object) -> str:
    """Write a text, a number or nothing as JSON, in ASCII: importing ``json`` would take too long."""
    if value is None:
        return "null"
    if not isinstance(value, str):
        return repr(value)
    if value.isascii() and value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def _quoted(word: str) -> str:
    """Quote a word for a shell, as ``shlex.quote`` does."""
    if word and _PLAIN.issuperset(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _replace_alone(text: str, value: str, name: str) -> str:
    """Replace a value where no letter, digit or underscore stands beside it."""
    parts, start = [], 0
    while (at := text.find(value, start)) >= 0:
        end = at + len(value)
        if _is_word(text[at - 1 : at]) or _is_word(text[end : end + 1]):
            parts.append(text[start : at + 1])
            start = at + 1
        else:
            parts += (text[start:at], name)
            start = end
    return "".join((*parts, text[start:]))


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()
