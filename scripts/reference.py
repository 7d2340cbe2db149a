"""Write what is made of the table of settings: ``docs/reference.md`` and both schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coopfile.language import directions
from coopfile.language.schema import dump
from coopfile.language.settings import BUILT_IN_PROTECT, SETTINGS, Setting
from coopfile.language.values import Choice, ListOf
from coopfile.plan.schema import plan_schema

ROOT = Path(__file__).resolve().parent.parent

HEAD = """# The language

<!-- Made by `make docs` from coopfile/language/settings.py. -->

A Coopfile is TOML; every key is optional and an unknown key is an error. Layers, later
wins: built-in defaults, `$XDG_CONFIG_HOME/coop/Coopfile`, the project's `Coopfile` (searched
upwards), `Coopfile.local` beside it, the matched user's override, `COOP_*` variables
(`COOP_NETWORK_MODE` is `network.mode`), `--set key=value`.

*Layers* says whether a later layer **replaces** the value, **adds** to the list, or
**merges** the table key by key. *Wider* says which way gives the sandbox more.
"""

TAIL = """
## Users

```toml
[[users]]
name = "alice"
trust = "owner"                   # owner | full | inner | familiar | public
match = ["terminal:default", "signal:+15555550100"]
[users.override]                  # any of the keys above
network.mode = "none"
```

`coop run --as IDENTITY` finds the user whose `match` has the identity (`channel:sender`) and
applies the override. `--place group` lowers the trust to at most `familiar`. The `familiar`
and the `public` may not run commands.

## Ceiling

```toml
[ceiling]                         # in $XDG_CONFIG_HOME/coop/Coopfile only
network.mode = "none"
limits.memory = "4g"
```

No other layer, the command line included, may ask for more.

## Always read-only in the workspace

Existing or not: """


def wider(setting: Setting) -> str:
    """Say in words which direction of a setting is wider."""
    direction = setting.wider
    if isinstance(direction, directions.Ranked):
        return " < ".join(f"`{_toml(value)}`" for value in direction.values)
    words: dict[type[directions.Direction], str] = {
        directions.Ascending: "more",
        directions.Shrinking: "fewer items",
        directions.GrowingRead: "more items",
        directions.Growing: "more items",
        directions.GrowingNames: "more items",
        directions.EnvironmentVariables: "more host variables",
        directions.Backends: "a weaker back end",
        directions.Profile: "`restrictive` < `permissive` < whatever path is chosen",
        directions.Chosen: "whatever is chosen",
        directions.Differs: "neither",
    }
    return words[type(direction)]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else f'"{value}"'


def default(setting: Setting) -> str:
    """Return a setting's default as Markdown."""
    if setting.default is None or setting.key == "env":
        return "not set"
    if setting.default == BUILT_IN_PROTECT:
        return "a built-in list, below"
    return f"`{_toml(setting.default)}`"


def meaning(setting: Setting) -> str:
    """Return what a setting is for, and its possible values where they are few."""
    kind = setting.type.item if isinstance(setting.type, ListOf) else setting.type
    if not isinstance(kind, Choice):
        return setting.help
    return f"{setting.help} One of {', '.join(f'`{value}`' for value in kind.values)}."


def reference() -> str:
    """Return the whole page."""
    layers = {"replace": "replaces", "add": "adds", "merge": "merges"}
    parts = [HEAD]
    section = None
    for setting in SETTINGS:
        if setting.key.split(".")[0] != section:
            section = setting.key.split(".")[0]
            parts.append(f"\n## {section}\n\n")
            parts.append("| key | meaning | default | example | layers | wider |\n")
            parts.append("|---|---|---|---|---|---|\n")
        cells = (
            f"`{setting.key}`",
            meaning(setting),
            default(setting),
            f"`{setting.example}`",
            layers[setting.merge],
            wider(setting),
        )
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    protect = ", ".join(f"`{path}`" for path in BUILT_IN_PROTECT)
    return "".join(parts) + TAIL + protect + ".\n"


def files() -> dict[Path, str]:
    """Return each file that is made of the table, and its text."""
    return {
        ROOT / "docs" / "reference.md": reference(),
        ROOT / "schema" / "coopfile.schema.json": dump(),
        ROOT / "schema" / "plan.schema.json": json.dumps(plan_schema(), indent=2) + "\n",
    }


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
