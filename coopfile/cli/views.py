"""The views of ``coop plan``, each as text and as JSON-able data."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from coopfile.access.given import gains
from coopfile.cli import output
from coopfile.cli.options import request
from coopfile.compiling import Compiled, compile_project
from coopfile.errors import CoopError
from coopfile.find import real_home
from coopfile.language.items import Variable
from coopfile.language.merging import Origin
from coopfile.language.settings import SETTINGS, Setting
from coopfile.language.values import ListOf
from coopfile.plan import canonical
from coopfile.plan.compare import Change, compare, widening
from coopfile.plan.model import Plan, to_data

_MAX_BYTES = 1024 * 1024
_WIDEST = 50


def show(options: Namespace) -> None:
    """Compile, and print the view that was asked for."""
    compiled = compile_project(request(options))
    if options.digest:
        digest = canonical.digest(compiled.plan)
        _print(options, {"digest": digest}, digest)
    elif options.diff is not None:
        changes = _compared(_other(options), compiled.plan)
        _print(options, [_change(change) for change in changes], _described(options, changes))
    elif options.operations:
        from coopfile.launching import prepare
        from coopfile.native.describe import operations

        lines = list(operations(prepare(compiled.plan, compiled.project, os.environ, ())))
        _print(options, lines, "\n".join(map(output.safe, lines)))
    elif options.explain:
        _print(options, _origins(compiled), _explained(compiled, options.verbose))
    elif options.json:
        output.emit(canonical.to_json(compiled.plan))
    else:
        from coopfile.plan.present import readable

        output.emit(readable(compiled.plan))


def _print(options: Namespace, data: object, text: str) -> None:
    if options.json:
        output.emit_json(data)
    else:
        output.emit(text)


def _origins(compiled: Compiled) -> list[dict[str, object]]:
    """Return one object per value, or per item of a list, with where it comes from."""
    return [
        {
            "key": key,
            "value": to_data(value),
            "layer": origin.layer,
            "source": origin.source,
            "line": origin.line,
        }
        for key, value, _, origin in _leaves(compiled)
    ]


def _explained(compiled: Compiled, verbose: int) -> str:
    rows: list[tuple[str, str, str]] = []
    for (key, origin), leaves in groupby(_leaves(compiled), lambda leaf: (leaf[0], leaf[3])):
        texts = [text for _, _, text, _ in leaves]
        if origin.layer == "default" and len(texts) > 1 and not verbose:
            texts = [f"{texts[0]} and {len(texts) - 1} more"]
        rows += [(key, text, str(origin)) for text in texts]
    wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
    wide[1] = min(wide[1], _WIDEST)
    return "\n".join(
        f"{key:<{wide[0]}}  {output.safe(text):<{wide[1]}}  {output.safe(origin)}"
        for key, text, origin in rows
    )


def _leaves(compiled: Compiled) -> Iterator[tuple[str, Any, str, Origin]]:
    """Yield key, typed value, its text and its origin; lists item by item, and empty ones not at all."""
    for setting in SETTINGS:
        value = compiled.settings.value(setting.key)
        origins = compiled.settings.origins(setting.key)
        if not isinstance(value, tuple):
            shown = "not set" if value is None else setting.type.show(value)
            yield setting.key, value, shown, origins[0]
            continue
        for item, origin in zip(value, origins, strict=True):
            if isinstance(item, Variable):
                yield f"env.{item.name}", item, _variable(item), origin
            else:
                yield setting.key, item, _item(setting, item), origin


def _item(setting: Setting, item: Any) -> str:
    return setting.type.item.show(item) if isinstance(setting.type, ListOf) else str(item)


def _variable(variable: Variable) -> str:
    return f"${variable.host} of the host" if variable.host is not None else f'"{variable.value}"'


def _other(options: Namespace) -> Plan:
    """Return the plan to compare with: from its JSON, or compiled for the same asker."""
    path = os.path.join(options.directory, options.diff)
    shown = output.safe(options.diff)
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise CoopError(f"cannot read {shown}: {error.strerror}") from None
    if text.lstrip()[:1] == b"{":
        if len(text) > _MAX_BYTES:
            raise CoopError(f"{shown} is longer than {_MAX_BYTES:,} bytes; a plan never is")
        return canonical.from_json(text, shown)
    return compile_project(request(options).replace(file=options.diff)).plan


def _compared(old: Plan, new: Plan) -> tuple[Change, ...]:
    """Return every difference, and call wider what is so because two paths are one on this machine."""
    changes = compare(old, new)
    known = {change.old or change.new for change in widening(changes) if change.key.startswith("files.")}
    found = gains((old.files,), new.files, real_home(os.environ))
    more = [change for change in found if (change.old or change.new) not in known]
    said = {(change.key, change.old, change.new) for change in more}
    return (*(item for item in changes if (item.key, item.old, item.new) not in said), *more)


def _change(change: Change) -> dict[str, object]:
    return {
        "key": change.key,
        "kind": change.kind,
        "old": to_data(change.old),
        "new": to_data(change.new),
        "item": change.item,
    }


def _described(options: Namespace, changes: Sequence[Change]) -> str:
    if not changes:
        return "" if options.quiet else "no differences"
    color = output.wants_color(options.color, sys.stdout)
    styles = {"widens": "yellow", "narrows": "green", "differs": "cyan"}
    return "\n".join(
        output.paint(output.safe(change.describe()), styles[change.kind], color) for change in changes
    )
