"""Which tools there are for whom, as models see them: names, words, JSON Schemas; and checking arguments."""

from __future__ import annotations

from coopfile.errors import CoopError
from coopfile.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from coopfile.plan.model import Plan

NAMES = ("bash", "read_file", "write_file", "edit_file")
_PATH = {"type": "string", "minLength": 1, "description": "a path in the workspace"}
_NETWORKS = {
    "none": "There is no network.",
    "host": "It has this machine's network.",
    "veth": "It reaches the internet, but nothing on this machine or beside it.",
    "proxy": "Of the network it reaches nothing but: {}.",
}


class ToolDefinition(Record):
    """A tool for a model. ``schema`` is a JSON Schema (2020-12) of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False


class ArgumentError(CoopError):
    """A tool was called with what it does not take."""


def names_for(plan: Plan) -> tuple[str, ...]:
    """Return the tools that whoever the plan is for may call; a plan for nobody in particular has all."""
    return NAMES if plan.access is None else tuple(name for name in NAMES if name in plan.access.tools)


def is_sandboxed(plan: Plan) -> bool:
    """Tell whether tool calls run in a sandbox (design section 11)."""
    return plan.access is None or (plan.access.sandboxed and plan.sandbox.enabled)


def may_use_inner(plan: Plan) -> bool:
    """Tell whether tools of the embedding program are for whom the plan is: "all" in the table of trust."""
    return plan.access is None or plan.access.trust in ("owner", "full")


def workspace(plan: Plan, root: str) -> str:
    """Return the workspace as commands see it; ``root`` is where it is on the host."""
    return plan.workspace.path if is_sandboxed(plan) and plan.workspace.path != "host" else root


def definitions(plan: Plan, root: str) -> tuple[ToolDefinition, ...]:
    """Return the tools of whom the plan is for, always in the same order; ``root`` is the workspace's."""
    made = {definition.name: definition for definition in _all(plan, workspace(plan, root))}
    return tuple(made[name] for name in names_for(plan))


def _all(plan: Plan, workspace: str) -> tuple[ToolDefinition, ...]:
    seconds = plan.limits.timeout / 1000
    return (
        ToolDefinition(
            "bash",
            f"Run a shell command in {workspace}. {_surroundings(plan)} "
            f"It is ended after {seconds:g} seconds; of what it prints the last {plan.limits.output} bytes "
            "are kept. It cannot ask for input.",
            _schema(
                {
                    "command": {"type": "string", "minLength": 1, "description": "what sh is to run"},
                    "timeout": {
                        "type": "number",
                        "exclusiveMinimum": 0,
                        "maximum": seconds,
                        "description": "seconds after which it is ended",
                    },
                },
                "command",
            ),
        ),
        ToolDefinition(
            "read_file",
            f"Read a text file in {workspace}, or some lines of it.",
            _schema(
                {
                    "path": _PATH,
                    "offset": {"type": "integer", "minimum": 1, "description": "the first line; default: 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "how many lines; default: all"},
                },
                "path",
            ),
            read_only=True,
        ),
        ToolDefinition(
            "write_file",
            f"Write a text file in {workspace}: a new one, or all of one that there is. "
            "Missing directories are made.",
            _schema({"path": _PATH, "content": {"type": "string"}}, "path", "content"),
        ),
        ToolDefinition(
            "edit_file",
            f"Replace a text in a file in {workspace}. It has to be in the file exactly once, "
            "with all its spaces and line ends: give as much around it as that takes.",
            _schema(
                {
                    "path": _PATH,
                    "old_text": {"type": "string", "minLength": 1},
                    "new_text": {"type": "string"},
                },
                "path",
                "old_text",
                "new_text",
            ),
        ),
    )


def _surroundings(plan: Plan) -> str:
    if not is_sandboxed(plan):
        return "It runs on this machine, with all that its owner may do."
    allow = ", ".join(map(str, plan.network.allow)) or "nothing"
    network = _NETWORKS[plan.network.mode].format(allow)
    return f"It runs in a sandbox that sees the workspace and tools, and no other files. {network}"


def _schema(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def check(definition: ToolDefinition, arguments: object) -> dict[str, Any]:
    """Return a call's arguments if they are what the tool's schema asks for. Raises ArgumentError.

    It knows the keywords that are used above.
    """
    name, schema = definition.name, definition.schema
    if not isinstance(arguments, dict):
        raise ArgumentError(f"{name}: the arguments are no object", f"it takes {_listed(schema)}")
    for key in schema["required"]:
        if key not in arguments:
            raise ArgumentError(f"{name}: {key} is missing", f"it takes {_listed(schema)}")
    for key, value in arguments.items():
        rule = schema["properties"].get(key)
        if rule is None:
            raise ArgumentError(f"{name} has no argument {key!r:.100}", f"it takes {_listed(schema)}")
        problem = _problem(rule, value)
        if problem:
            raise ArgumentError(f"{name}: {key} {problem}")
    return arguments


def _listed(schema: Mapping[str, Any]) -> str:
    return ", ".join(
        key if key in schema["required"] else f"{key} (if wanted)" for key in schema["properties"]
    )


def _problem(rule: Mapping[str, Any], value: object) -> str | None:
    kind = rule["type"]
    if kind == "string":
        if not isinstance(value, str):
            return "is not a text"
        return "is empty" if len(value) < rule.get("minLength", 0) else None
    if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else (int, float)):
        return "is not a whole number" if kind == "integer" else "is not a number"
    if not rule.get("exclusiveMinimum", float("-inf")) < value or value < rule.get("minimum", value):
        return f"is {value}, which is too small"
    return f"is {value}; it is at most {rule['maximum']:g}" if value > rule.get("maximum", value) else None
