"""A gateway: several people, in talks and groups, one agent, a model that calls tools.

    python examples/gateway.py        in a project; who is who stands in ~/.config/coop/Coopfile:

    [[users]]
    name = "olga"
    trust = "owner"
    match = ["chat:olga"]

Here the model is a fake that goes by what it is told; in yours it is one, and messages come from a chat.
There is no policy in this file: who may do what, and where it runs, is the Coopfile's.
"""

from __future__ import annotations

import sys

import coopfile


def model(
    message: str, tools: list[str], told: list[coopfile.ToolResult]
) -> tuple[str, dict[str, object]] | str:
    """Return the call that a model would make next, or its answer."""
    if told and not told[-1].error:
        return told[-1].text
    if len(told) == 1 and "secret" in message:  # it has read why, and does something else
        return "read_file", {"path": "README"}
    if told:
        return f"I could not: {told[-1].text.splitlines()[0]}"
    if message.startswith("run ") and "bash" in tools:
        return "bash", {"command": message.removeprefix("run ")}
    if message.startswith("read ") and "read_file" in tools:
        return "read_file", {"path": message.removeprefix("read ")}
    return f"I have {', '.join(tools) or 'no tools'} for that"


def answer(executor: coopfile.ToolExecutor, sender: str, message: str, place: str = "direct") -> str:
    """Let the model work on a message until it has an answer."""
    tools = [tool.name for tool in executor.tools(sender, place=place)]
    told: list[coopfile.ToolResult] = []
    while not isinstance(step := model(message, tools, told), str):
        told.append(executor.execute(*step, sender, place=place))
    return step


def approve(confirmation: coopfile.Confirmation) -> str:
    """Ask the owner, in a chat of theirs; this one says yes to what does not push."""
    print(confirmation.text, file=sys.stderr)
    return "no" if "push" in confirmation.command else "yes"


MESSAGES = [
    *(
        (f"chat:{name}", "run echo $COOP_SESSION | cut -c1-3", "direct")
        for name in ("olga", "fred", "ines", "fay", "eve")
    ),
    ("chat:fay", "read README", "direct"),
    ("chat:olga", "run make", "group"),
    ("chat:ines", "run git push", "direct"),
    ("chat:fred", "read secret.env", "direct"),
]

if __name__ == "__main__":
    with coopfile.ToolExecutor(confirm=approve) as executor:
        for sender, message, place in MESSAGES:
            print(f"{sender} ({place}): {message}\n  -> {answer(executor, sender, message, place)}")
