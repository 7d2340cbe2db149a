"""The JSON Schema of Coopfiles, made of the settings table.

``python -m coopfile.language.schema`` prints what ``schema/coopfile.schema.json`` holds.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import tomli

from coopfile.language.settings import MERGE, SETTINGS, TRUST_LEVELS, Setting
from coopfile.language.values import Choice, Identity, ListOf, UserName

IDENTIFIER = "https://coopfile.dev/schema/coopfile.schema.json"

# The version of the language that this coop knows.
VERSION = 1

USER_NAME = UserName()
TRUST = Choice(*TRUST_LEVELS)
MATCH = ListOf(Identity(), ordered=False)

_SECTIONS = {
    "base": ("Base", "What the sandbox's root file system is made of."),
    "packages": ("Packages", "Packages to install into the root file system when it is built."),
    "setup": ("Set-up", "Commands that finish the root file system, and their network."),
    "agent": ("Agent", "The program that works in the sandbox."),
    "workspace": ("Workspace", "The project's directory, which the sandbox may write to."),
    "files": ("Files", "More of the host's files, and what stays hidden."),
    "network": ("Network", "What the sandbox may reach, and what reaches it."),
    "session": ("Session", "What outlives a command."),
    "env": ("Environment", ""),
    "limits": ("Limits", "The most that the sandbox may use."),
    "sandbox": ("Sandbox", "What enforces the plan."),
    "tools": ("Tools", "The tools that an agent calls."),
}


@cache
def generate() -> dict[str, Any]:
    """Return the schema (2020-12); callers must not change it."""
    sections = _sections()
    settings = {name: {"$ref": f"#/$defs/{name}"} for name in sections}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": IDENTIFIER,
        "title": "Coopfile",
        "description": "What a sandbox for untrusted code may have.",
        "type": "object",
        "properties": {
            "coop": {
                "title": "Language version",
                "description": "The version of the language that the file is written in.",
                "type": "integer",
                "const": VERSION,
                "default": VERSION,
                "examples": [VERSION],
            },
            **settings,
            "users": {
                "title": "Users",
                "description": "People, by the identities that channels know them by. "
                "A user of the same name in a later layer replaces the earlier one.",
                "type": "array",
                "items": _user(),
            },
            "ceiling": {
                "title": "Ceiling",
                "description": "In your own file only: the most that any other layer may ask for.",
                **_table(settings),
            },
        },
        "additionalProperties": False,
        "$defs": {**sections, "settings": _table(settings)},
    }


def dump() -> str:
    """Return the schema as the text of its file."""
    return json.dumps(generate(), indent=2, ensure_ascii=False) + "\n"


def _sections() -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for setting in SETTINGS:
        section, _, key = setting.key.partition(".")
        title, help = _SECTIONS[section]
        if key:
            table = sections.setdefault(section, {"title": title, "description": help, **_table({})})
            table["properties"][key] = _setting(key, setting)
        else:
            sections[section] = _setting(section, setting)
    return sections


def _setting(key: str, setting: Setting) -> dict[str, Any]:
    schema: dict[str, Any] = {"title": key.replace("_", " ").capitalize(), "description": setting.help}
    if setting.default is not None:
        empty: Any = {} if setting.merge == MERGE else []
        schema["default"] = (
            list(setting.default) or empty if isinstance(setting.default, tuple) else setting.default
        )
    schema["examples"] = [tomli.loads(f"value = {setting.example}")["value"]]
    return {**schema, **setting.type.schema()}


def _user() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {
                "title": "Name",
                "description": "What coop calls the user.",
                "examples": ["alice"],
                **USER_NAME.schema(),
            },
            "trust": {
                "title": "Trust",
                "description": "What the user's tool calls may do: owner the most, public nothing.",
                "default": "public",
                "examples": ["inner"],
                **TRUST.schema(),
            },
            "match": {
                "title": "Match",
                "description": "The user's identities, each channel:sender.",
                "default": [],
                "examples": [["terminal:default", "signal:+15555550100"]],
                **MATCH.schema(),
            },
            "override": {
                "title": "Override",
                "description": "Settings that count, after the files', when this user asks.",
                "$ref": "#/$defs/settings",
            },
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _table(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "additionalProperties": False}


def main() -> None:
    """Print the schema."""
    print(dump(), end="")


if __name__ == "__main__":
    main()
