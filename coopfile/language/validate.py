"""Document to layers: unknown keys and wrong shapes by the schema, wrong values by their types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from coopfile.language import schema, unknown
from coopfile.language.composite import Backends, Environment, ListOf
from coopfile.language.diagnostics import Diagnostic, Position, quoted
from coopfile.language.locate import Path
from coopfile.language.merging import Layer, Origin, Valued, gathered
from coopfile.language.settings import SETTINGS
from coopfile.language.sources import Source
from coopfile.language.suggest import nearest
from coopfile.language.syntax import Text, read_text
from coopfile.language.value_type import BadValue, Problem, ValueType, describe
from coopfile.record import Record

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import ValidationError

_MAX_GUESSES = 200


class User(Record):
    """Somebody with identities of their own; ``override`` is the layer that counts when they ask."""

    name: str
    trust: str
    match: tuple[str, ...]
    override: Layer | None
    origin: Origin


class Place(Record):
    """A position, and the text of its line."""

    position: Position | None
    line: str | None


class Document(Record):
    """What one source says. ``places`` are those of its users' identities, by name and identity."""

    source: Source
    settings: Layer
    users: tuple[User, ...]
    ceiling: Layer
    places: dict[tuple[str, str], Place]


def read_document(source: Source) -> tuple[Document, list[Diagnostic]]:
    """Parse and validate one source; return what of it is right, and everything that is wrong."""
    text = read_text(source)
    problems = list(text.problems)
    document = Document(source, {}, (), {}, {})
    if text.data is None:
        return document, problems
    newer = _newer(text, text.data)
    if newer:
        return document, [*problems, newer]
    reader = _Reader(text, text.data)
    document = reader.read()
    return document, [*problems, *reader.check_shape(), *reader.problems]


def typed(kind: ValueType, raw: object, origin: Callable[[Path], Origin]) -> Valued:
    """Parse a raw value; ``origin`` says where what stands at a path inside it was written.

    Raises BadValue.
    """
    if isinstance(kind, ListOf):
        items = kind.parse_items(raw)
        return gathered(kind, [(item, origin((index,))) for index, item in enumerate(items)])
    value = kind.parse(raw)
    if isinstance(kind, Environment):
        return Valued(value, tuple(origin((variable.name,)) for variable in value))
    if isinstance(kind, Backends) and not isinstance(raw, str):
        return Valued(value, tuple(origin((index,)) for index in range(len(value))))
    return Valued(value, (origin(()),))


def _newer(text: Text, data: dict[str, Any]) -> Diagnostic | None:
    """Return the one thing to say about a file of a later language: the rest would be guesses."""
    version = data.get("coop")
    if isinstance(version, bool) or not isinstance(version, int) or version <= schema.VERSION:
        return None
    message = (
        f"the file is written in version {describe(version).rpartition('integer ')[2]} of the language; "
        f"this coop knows version {schema.VERSION}"
    )
    return text.problem("version", message, f"upgrade coop, or write coop = {schema.VERSION}", ("coop",))


class _Reader:
    """Takes a parsed source apart. What is wrong is collected in ``problems``."""

    def __init__(self, text: Text, data: dict[str, Any]) -> None:
        self.text = text
        self.data = data
        self.problems: list[Diagnostic] = []
        self.guesses = 0

    def check_shape(self) -> list[Diagnostic]:
        """Return what the schema says about keys and tables; values are their types' business."""
        if is_plain(self.data):
            return []
        return [found for error in _validator().iter_errors(self.data) for found in self._translate(error)]

    def read(self) -> Document:
        """Return everything that the types accept."""
        self._value("coop", ("coop",), self.data, _Version())
        settings = self._layer(())
        users, places = self._users()
        ceiling: Layer = {}
        if "ceiling" in self.data and self.text.source.layer != "user":
            message = "[ceiling] counts in your own file only"
            help = "move it there, to ~/.config/coop/Coopfile; a project cannot set a ceiling"
            self._report("ceiling", Problem(message, help, (), True), ("ceiling",))
        else:
            ceiling = self._layer(("ceiling",))
        return Document(self.text.source, settings, users, ceiling, places)

    def _layer(self, prefix: Path) -> Layer:
        table: Any = self.data
        for part in prefix:
            table = table.get(part) if isinstance(table, dict) else table[part]
        layer = {}
        for setting in SETTINGS:
            section, _, key = setting.key.partition(".")
            holder = table.get(section) if isinstance(table, dict) and key else table
            valued = self._value(key or section, (*prefix, *setting.key.split(".")), holder, setting.type)
            if valued:
                layer[setting.key] = valued
        return layer

    def _users(self) -> tuple[tuple[User, ...], dict[tuple[str, str], Place]]:
        users: dict[str, User] = {}
        places: dict[tuple[str, str], Place] = {}
        listed = self.data.get("users")
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            if not isinstance(entry, dict):
                continue
            path: Path = ("users", index)
            override = self._layer((*path, "override")) if isinstance(entry.get("override"), dict) else None
            name = self._value("name", (*path, "name"), entry, schema.USER_NAME)
            trust = self._value("trust", (*path, "trust"), entry, schema.TRUST)
            match = self._value("match", (*path, "match"), entry, schema.MATCH)
            if name is None:
                continue
            if name.value in users:
                help = f"the first one is on line {users[name.value].origin.line}; put both into one"
                problem = Problem(f"there are two users called {quoted(name.value)}", help, ())
                self._report("user", problem, (*path, "name"))
                continue
            if not entry.get("match"):
                message = f"the user {quoted(name.value)} matches nobody"
                help = 'name their identities, as in match = ["terminal:default"]'
                self.problems.append(self.text.problem("user", message, help, path, severity="warning"))
            users[name.value] = User(
                name.value,
                trust.value if trust else "public",
                match.value if match else (),
                override,
                self._origin(path),
            )
            if match:
                for at, identity in enumerate(entry["match"]):
                    place = Place(*self.text.place((*path, "match", at)))
                    places.setdefault((name.value, identity), place)
        return tuple(users.values()), places

    def _value(self, key: str, path: Path, holder: object, kind: ValueType) -> Valued | None:
        """Return the typed value that a table has at a key, if it has one and it is right."""
        if not isinstance(holder, dict) or key not in holder:
            return None
        override = path[2:3] == ("override",)
        try:
            return typed(kind, holder[key], lambda inner: self._origin((*path, *inner), override))
        except BadValue as error:
            for problem in error.problems:
                self._report("value", problem, path)
        return None

    def _origin(self, path: Path, override: bool = False) -> Origin:
        source = self.text.source
        return Origin("override" if override else source.layer, source.name, self.text.line(path))

    def _report(self, code: str, problem: Problem, path: Path) -> None:
        where = (*path, *problem.path)
        self.problems.append(self.text.problem(code, problem.message, problem.help, where, problem.at_key))

    def _translate(self, error: ValidationError) -> Iterator[Diagnostic]:
        path: Path = tuple(error.absolute_path)
        prefix, inside = _split(path)
        if prefix == ("ceiling",) and self.text.source.layer != "user":
            return
        if inside in _VALUES or (prefix[:1] == ("users",) and path[2:3] in _USER_VALUES) or path == ("coop",):
            return
        if error.validator == "additionalProperties" and isinstance(error.instance, dict):
            known = error.schema["properties"] if isinstance(error.schema, Mapping) else {}
            table = [str(part) for part in inside if not isinstance(part, int)]
            for key in error.instance:
                if key not in known:
                    yield self._unknown(key, path, prefix, table, known)
        elif error.validator == "type":
            message, help = _wrong_shape(path, error.instance)
            yield self.text.problem("shape", message, help, path)
        elif error.validator == "required" and not self._misspelt("name", error.instance):
            help = 'such as name = "alice"'
            yield self.text.problem("user", "the user has no name", help, path, key=True)

    def _misspelt(self, key: str, table: Any) -> bool:
        """Tell whether a key may be there after all, in a way that is reported already."""
        return self.text.cut or any(nearest(other, [key]) for other in table)

    def _unknown(
        self, key: str, path: Path, prefix: Path, table: list[str], known: Iterable[str]
    ) -> Diagnostic:
        names = {"ceiling": "[ceiling]", "override": "an override"}
        within = names.get(str(prefix[-1]), "") if prefix else ""
        help: str | None
        if prefix[:1] == ("users",) and len(path) == 2:
            where, help = "a user", unknown.for_user(key, known)
        else:
            where = f"[{'.'.join(table)}]" if table else within or "a Coopfile"
            # Guessing takes time, and nobody reads the thousandth guess.
            self.guesses += 1
            help = unknown.for_key(table, key, known, within) if self.guesses <= _MAX_GUESSES else None
        message = f"{quoted(key)[1:-1]} is not a key of {where}"
        return self.text.problem("unknown-key", message, help, (*path, key), key=True)


def is_plain(data: dict[str, Any]) -> bool:
    """Tell whether keys and tables are as the schema has them.

    The schema decides; but loading what reads it takes three quarters of the time of a compilation.
    A test holds the two to the same answers.
    """
    users, ceiling = data.get("users", []), data.get("ceiling", {})
    settings = {key: value for key, value in data.items() if key not in ("coop", "users", "ceiling")}
    return (
        _are_settings(settings)
        and _are_settings(ceiling)
        and isinstance(users, list)
        and all(_is_user(user) for user in users)
    )


def _are_settings(table: object) -> bool:
    return isinstance(table, dict) and all(
        (key,) in _VALUES
        or (key in _SECTIONS and isinstance(value, dict) and all((key, inner) in _VALUES for inner in value))
        for key, value in table.items()
    )


def _is_user(table: object) -> bool:
    return (
        isinstance(table, dict)
        and "name" in table
        and {"name", "trust", "match", "override"}.issuperset(table)
        and _are_settings(table.get("override", {}))
    )


class _Version(ValueType):
    """The version of the language."""

    def parse(self, raw: object) -> int:
        if isinstance(raw, bool) or not isinstance(raw, int) or raw != schema.VERSION:
            message = f"expected the version of the language, not {describe(raw)}"
            raise BadValue(message, f"write coop = {schema.VERSION}")
        return raw


_VALUES = frozenset(tuple(setting.key.split(".")) for setting in SETTINGS)
_SECTIONS = frozenset(path[0] for path in _VALUES if len(path) == 2)
_USER_VALUES = (("name",), ("trust",), ("match",))


def _split(path: Path) -> tuple[Path, Path]:
    """Split a path into what leads to a set of settings, and the path in it.

    What stands inside a setting's value counts as the setting.
    """
    prefix: Path = ()
    if path[:1] == ("ceiling",):
        prefix, path = path[:1], path[1:]
    elif path[:1] == ("users",):
        size = 3 if path[2:3] == ("override",) else 2
        prefix, path = path[:size], path[size:]
    for size in (1, 2):
        if path[:size] in _VALUES:
            return prefix, path[:size]
    return prefix, path


def _wrong_shape(path: Path, raw: object) -> tuple[str, str | None]:
    name = str(path[-1]) if path else ""
    if path == ("users",):
        help = (
            "write [[users]], with two brackets"
            if isinstance(raw, dict)
            else "write [[users]] for each of them"
        )
        return f"users is an array of tables, not {describe(raw)}", help
    if isinstance(path[-1], int):
        return f"a user is a table, not {describe(raw)}", "write [[users]] for each of them"
    header = ".".join(str(part) for part in path if not isinstance(part, int))
    return f"{name} is a table, not {describe(raw)}", f"write [{header}] and its keys below"


@cache
def _validator() -> Draft202012Validator:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(schema.generate())
