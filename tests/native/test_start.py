"""How a run starts: what is imported, what is cached, who has approved."""

from __future__ import annotations

import json
import os
import time

import pexpect
import pytest

from coopfile.startup import BUNDLES
from tests.sandboxes import Project, run

pytestmark = pytest.mark.native

SLOW = {
    *(
        "argparse",
        "asyncio",
        "collections",
        "dataclasses",
        "enum",
        "functools",
        "hashlib",
        "importlib.metadata",
    ),
    *("importlib.resources", "inspect", "jinja2", "json", "jsonschema", "logging", "pathlib", "re", "shlex"),
    *(
        "shutil",
        "signal",
        "socket",
        "subprocess",
        "tempfile",
        "tomli",
        "tomllib",
        "traceback",
        "typing",
        "warnings",
    ),
}


# Tells at the end which modules are there, be they from a bundle or imported one by one.
TELLING = """
import os, sys
end, own = os._exit, os.getpid()
def tell(status):
    if os.getpid() == own:
        os.write(1, "\\n".join(sys.modules).encode())
    end(status)
os._exit = tell
sys.argv = sys.argv[1:]
exec(open(sys.argv[0]).read())
"""


def imported(project: Project, *arguments: str) -> set[str]:
    """Return the modules that a run, or another command, has at its end."""
    python, *options, script = project.actor.coop
    said = arguments or ("run", "-q", "--", "true")
    command = [*project.actor.prefix, python, *options, "-c", TELLING, script, *said]
    result = run(command, b"", project.directory, project.environment)
    assert result.status == 0, result
    return set(result.out.splitlines())


def bare(project: Project) -> set[str]:
    """Return the modules that the interpreter has by itself."""
    command = [*project.actor.prefix, project.actor.coop[0], "-I", "-c", "import sys; print(*sys.modules)"]
    return set(run(command, b"", project.directory, project.environment).out.split())


def test_cached_imports(project: Project) -> None:
    """A cached run imports the runner and the plan, and nothing that is slow to import."""
    project.coopfile('[env]\nEDITOR = "vi"\n[files]\nhide = [".env"]\n[limits]\npids = 100\n')
    time.sleep(0.1)  # a Coopfile as new as this would not be cached
    assert "tomli" in imported(project)
    imported(project)  # writes what there is no bundle of yet
    found = imported(project)
    without = bare(project)
    assert "coopfile.native.runner" in found
    assert not (found - without) & SLOW, sorted((found - without) & SLOW)
    ours = {name for name in found if name.startswith("coopfile")}
    assert not {name for name in ours if name.startswith(("coopfile.access", "coopfile.compiling"))}
    assert {name for name in ours if name.startswith("coopfile.language")} <= {
        "coopfile.language",
        "coopfile.language.items",
    }
    assert not {name.rpartition(".")[2] for name in found} & {"relay", "pty", "modes", "terminal", "wire"}
    # What is left besides is small: the C modules, ctypes and what it needs.
    assert len(found - without - ours) < 15, sorted(found - without - ours)
    assert {f"coopfile.{name}" for name in BUNDLES["run"]} <= ours, "what no run needs is in the bundle"
    assert len(ours) < len(BUNDLES["run"]) + 6, sorted(ours)


def test_values_that_are_records(project: Project) -> None:
    """What a plan's variables and hosts are made of comes out of a bundle, too: it takes no other module."""
    if project.actor.uid != os.geteuid():
        pytest.skip("who has installed coop can write bundles, and nobody else")
    for text in ('[env]\nEDITOR = "vi"\n', '[network]\nmode = "proxy"\nallow = ["example.org"]\n'):
        project.coopfile(text)
        time.sleep(0.1)
        for _ in range(2):  # the second one writes what there is no bundle of yet
            imported(project)
        found = imported(project)
        assert "coopfile.language.items" in found
        assert "__future__" not in found - bare(project)


def test_uncached_globs(project: Project) -> None:
    """Globs cost their own matcher, only where they are used, and nothing slow even there."""
    for text, used in (('files.hide = [".env"]\n', False), ('files.hide = ["**/*.key"]\n', True)):
        project.coopfile(text)
        time.sleep(0.1)
        imported(project)
        found = imported(project)
        assert ("coopfile.plan.globs" in found) is used
        assert not (found - bare(project)) & SLOW


def test_edit_counts_at_once(project: Project) -> None:
    """An edit of the Coopfile counts in the very next run, however soon."""
    for number in range(8):
        project.write("Coopfile", f'[env]\nNUMBER = "{number}"\n')
        for _ in range(2):
            assert project.output("echo $NUMBER") == str(number)


def test_options_count(project: Project) -> None:
    """--set and COOP_ variables count although another plan is cached."""
    time.sleep(0.1)
    own = os.readlink("/proc/self/ns/net")
    for _ in range(2):
        assert project.output("cat /proc/net/dev | wc -l") == "3"
        assert project.output("readlink /proc/self/ns/net", options=["--set", "network.mode=host"]) == own
        assert project.output("readlink /proc/self/ns/net", environment={"COOP_NETWORK_MODE": "host"}) == own


def test_widening_needs_approval(project: Project) -> None:
    """A Coopfile that widens is refused before anything runs, until it is approved."""
    project.coopfile('network.mode = "host"\n', allow=False)
    for _ in range(2):
        result = project.shell("touch ran")
        assert result.status == 125 and "network.mode" in result.err and "allow" in result.err
        assert not (project.directory / "ran").exists()
    assert project.coop("allow").status == 0
    assert project.shell("touch ran").status == 0


def test_revoked(project: Project) -> None:
    """A revoked approval counts at once, though the plan was cached."""
    project.coopfile('network.mode = "host"\n')
    time.sleep(0.1)
    for _ in range(2):
        assert project.run("true").status == 0
    assert project.coop("allow", "--revoke").status == 0
    assert project.run("true").status == 125


@pytest.mark.parametrize(("answer", "status"), [("y", 0), ("n", 125), ("", 125)])
def test_asked_on_a_terminal(project: Project, answer: str, status: int) -> None:
    """On a terminal the owner is shown what is widened and asked, and a yes counts from then on."""
    project.coopfile('network.mode = "host"\n', allow=False)
    terminal = project.terminal("true")
    terminal.expect_exact("[y/N]")
    assert "network.mode" in (terminal.before or "")
    terminal.sendline(answer)
    terminal.expect(pexpect.EOF)
    assert terminal.wait() == status
    assert project.run("true").status == status


def test_users(project: Project) -> None:
    """--as applies the user's override and trust; who may not run commands is refused."""
    project.write(
        str(project.home / ".config/coop/Coopfile"),
        '[[users]]\nname = "a"\ntrust = "full"\nmatch = ["x:a"]\n[users.override]\nenv.WHO = "a"\n'
        '[[users]]\nname = "b"\ntrust = "familiar"\nmatch = ["x:b"]\n',
    )
    assert project.output("echo $WHO", options=["--as", "x:a"]) == "a"
    assert project.output("echo $WHO") == ""
    for options in (["--as", "x:b"], ["--as", "x:unknown"], ["--as", "x:a", "--place", "group"]):
        result = project.shell("touch ran", options=options)
        assert result.status == 125 and "may not run commands" in result.err
    assert not (project.directory / "ran").exists()


def test_users_of_a_project(project: Project) -> None:
    """A project's file that gives somebody trust needs approval for that."""
    project.coopfile('[[users]]\nname = "a"\ntrust = "full"\nmatch = ["x:a"]\n', allow=False)
    result = project.run("true", options=["--as", "x:a"])
    assert result.status == 125 and "access.trust" in result.err


def test_status(project: Project) -> None:
    """coop status tells the truth: usable, every ability probed, and the limits' means."""
    result = project.coop("status", "--json")
    status = json.loads(result.out)
    assert status["usable"] is True and result.status == 0
    native = status["backends"][0]
    assert native["name"] == status["backend"] == "native"
    assert all(item["present"] for item in native["abilities"] if item["needed"])
    assert set(native["limits"]) >= {"limits.memory", "limits.pids"}


def test_wrong_usage(project: Project) -> None:
    """Wrong usage is 2, and nothing runs."""
    for options in (["--no-such-option"], ["--timeout", "soon"], ["-C"]):
        result = project.run("touch", "ran", options=options)
        assert result.status == 2, (options, result)
    assert not (project.directory / "ran").exists()
