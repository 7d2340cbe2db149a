"""The example of a gateway does what the table of trust says."""

from __future__ import annotations

import pytest

from tests.sandboxes import CHECKOUT, Project, Workshop, run
from tests.toollab import log

pytestmark = pytest.mark.native

USERS = "".join(
    f'[[users]]\nname = "{name}"\ntrust = "{trust}"\nmatch = ["chat:{name}"]\n'
    for name, trust in (("olga", "owner"), ("fred", "full"), ("ines", "inner"), ("fay", "familiar"))
)


def test_the_gateway(project: Project, workshop: Workshop) -> None:
    """Owner, full, inner, familiar, public, a group, an approval, and a denial that the model acts on."""
    project.write(f"{project.home}/.config/coop/Coopfile", USERS)
    project.coopfile('[files]\nhide = ["*.env"]\n')
    project.write("README", "read me")
    project.write("secret.env", "SECRET")
    program = project.write("gateway.py", (CHECKOUT / "examples/gateway.py").read_text())
    command = [*project.actor.prefix, project.actor.coop[0], "-W", "error", str(program)]
    environment = {**project.environment, "PYTHONPATH": str(workshop.library)}
    result = run(command, b"", project.directory, environment)
    assert result.status == 0, result
    answers = [line.removeprefix("  -> ") for line in result.out.splitlines() if line.startswith("  -> ")]
    slug = project.directory.name[:3]
    assert answers == [
        "[no output]",  # the owner: no sandbox, so no session
        slug,
        slug,
        "I have read_file for that",
        "I have no tools for that",
        "read me",
        "I have read_file for that",
        "I could not: the command was not run: the person who was asked said no",
        "read me",
    ]
    assert "SECRET" not in result.out + result.err
    assert ("NOT sandboxed" in result.err, "git push" in result.err) == (True, True)
    assert len(log(project)) == 7
