"""The front of the language: sources in, settings out, or all that is wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from coopfile.language import merging
from coopfile.language.assignments import from_assignments, from_environment
from coopfile.language.composite import ListOf
from coopfile.language.diagnostics import WHOLE, CoopfileError, Diagnostic, Position, quoted
from coopfile.language.merging import Layer, Origin, Settings
from coopfile.language.settings import SETTINGS
from coopfile.language.sources import LAYERS, Source
from coopfile.language.syntax import read_text
from coopfile.language.validate import Document, User, read_document
from coopfile.record import Record

# Of one source; nobody reads more, and a file may have as many as it has bytes.
_MAX_PROBLEMS = 100

__all__ = ["Reading", "User", "read"]


class Reading(Record):
    """Everything that the layers say, checked but not merged yet.

    ``layers`` are (name, layer) in the order in which they count, without the
    defaults and the users' overrides. ``users`` and ``ceiling`` are what all files
    say together; the ceiling is the user's own file's.
    """

    layers: tuple[tuple[str, Layer], ...]
    documents: tuple[Document, ...]
    users: tuple[User, ...]
    ceiling: Layer
    warnings: tuple[Diagnostic, ...]

    def settings(self, user: User | None = None, layers: Collection[str] | None = None) -> Settings:
        """Return the merged settings, with a user's override if one is given.

        ``layers`` are the names of those that count, of ``sources.LAYERS``; None means
        all. The built-in defaults always count.
        """
        chosen = list(self.layers)
        if user is not None and user.override is not None:
            chosen.append(("override", user.override))
        chosen.sort(key=lambda named: LAYERS.index(named[0]))
        return merging.settings(layer for name, layer in chosen if layers is None or name in layers)

    def place(self, origin: Origin) -> tuple[Position, str | None]:
        """Return the whole line that an origin names, or the source where it has no lines."""
        for document in self.documents:
            if document.source.name == origin.source and origin.line is not None:
                text = read_text(document.source).lines.text(origin.line)
                indent = len(text) - len(text.lstrip())
                return Position(origin.source, origin.line, indent + 1, len(text.strip())), text
        return Position(origin.source, *WHOLE), None

    def conflicts(self, settings: Settings) -> tuple[Diagnostic, ...]:
        """Return what is wrong with the lists that the layers make together, each being right by itself."""
        found = []
        for setting in SETTINGS:
            if not isinstance(setting.type, ListOf):
                continue
            valued = settings.values[setting.key]
            listed = zip(valued.value, valued.origins, strict=True)
            pairs = sorted(listed, key=lambda pair: LAYERS.index(pair[1].layer))
            for problem in setting.type.item.finish([item for item, _ in pairs]):
                origin = pairs[int(problem.path[0])][1]
                message = f"{setting.key}: {problem.message}"
                found.append(Diagnostic("error", "value", message, problem.help, *self.place(origin)))
        return tuple(found)

    def users_of(self, layers: Collection[str]) -> tuple[User, ...]:
        """Return the users as they would be if only these layers counted."""
        return _users(document for document in self.documents if document.source.layer in layers)


def read(
    sources: Sequence[Source],
    *,
    environment: Mapping[str, str] | None = None,
    assignments: Sequence[str] = (),
) -> Reading:
    """Read the sources, the ``COOP_*`` variables of ``environment`` and ``key=value`` assignments.

    Raises CoopfileError with everything that is wrong in any of them.
    """
    problems: list[Diagnostic] = []
    documents = []
    for source in sorted(sources, key=lambda source: LAYERS.index(source.layer)):
        document, found = read_document(source)
        documents.append(document)
        problems += found
    users = _users(documents)
    problems += _shared_identities(users, documents)
    problems = _in_order(problems, documents)
    layers = [(document.source.layer, document.settings) for document in documents]
    for name, (layer, found) in (
        ("environment", from_environment(environment or {})),
        ("command line", from_assignments(assignments)),
    ):
        layers.append((name, layer))
        problems += found
    if any(problem.severity == "error" for problem in problems):
        raise CoopfileError(problems)
    ceiling: Layer = {}
    for document in documents:
        ceiling = merging.merge(ceiling, document.ceiling)
    return Reading(tuple(layers), tuple(documents), users, ceiling, tuple(problems))


def _users(documents: Iterable[Document]) -> tuple[User, ...]:
    """Return the users of all documents; one of the same name in a later one takes the earlier's place."""
    users = {user.name: user for document in documents for user in document.users}
    return tuple(users.values())


def _shared_identities(users: Sequence[User], documents: Sequence[Document]) -> list[Diagnostic]:
    """Return a problem for every identity that two users have."""
    places = {
        (user.origin, identity): document.places[user.name, identity]
        for document in documents
        for user in document.users
        for identity in user.match
    }
    owners: dict[str, User] = {}
    problems = []
    for user in users:
        for identity in user.match:
            first = owners.setdefault(identity, user)
            if first is user:
                continue
            place, before = places[user.origin, identity], places[first.origin, identity].position
            where = f" at {before.source}:{before.line}" if before else ""
            message = f"{quoted(identity)} is {quoted(first.name)}'s already"
            help = f"{first.name} has it{where}; an identity belongs to one user"
            problems.append(Diagnostic("error", "identity", message, help, place.position, place.line))
    return problems


def _in_order(problems: Iterable[Diagnostic], documents: Sequence[Document]) -> list[Diagnostic]:
    """Return the problems by document, line and column, each once, and of each document not too many."""
    by_source: dict[str, list[Diagnostic]] = {document.source.name: [] for document in documents}
    for problem in dict.fromkeys(problems):
        name = problem.position.source if problem.position else ""
        by_source.setdefault(name, []).append(problem)
    ordered = []
    for name, found in by_source.items():
        found.sort(key=lambda problem: _place(problem.position))
        ordered += found[:_MAX_PROBLEMS]
        if len(found) > _MAX_PROBLEMS:
            message = f"there are {len(found) - _MAX_PROBLEMS} more problems in this file"
            ordered.append(Diagnostic("error", "more", message, None, Position(name, *WHOLE)))
    return ordered


def _place(position: Position | None) -> tuple[int, int]:
    return (position.line, position.column) if position else (0, 0)
