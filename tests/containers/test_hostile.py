"""Strings that an engine or a shell could garble: they arrive byte by byte, or are refused in clear words."""

from __future__ import annotations

import json
import os

import pytest

from tests.containers.asked import coop_run, image, options
from tests.engines.engine import Engine
from tests.sandboxes import Project, run

ENGINES = pytest.mark.parametrize("engine", ["docker", "docker+runsc", "podman-rootless"], indirect=True)
STRINGS = (
    "",
    " ",
    "a b",
    "-",
    "--",
    "-x",
    "--env=A=1",
    "--privileged",
    "=",
    "a=b=c",
    ",",
    "a,b",
    "a:b:ro",
    "'",
    '"',
    'a"b"c',
    '""',
    "\\",
    "a\\",
    "\\\\n",
    "`id`",
    "$(id)",
    "$HOME ${PATH} $$",
    "%s%n",
    "{{.ID}}",
    "*",
    "~",
    "#",
    "!!",
    "\n",
    "a\nb\n",
    "\r\n",
    "\t",
    "\x01\x7f",
    "\x1b[31m",
    "grüße 世界 \U0001f600",
    "e\u0301\u00a0\u2028",
    "x" * 100_000,
)
NAMES = (
    " leading and trailing ",
    "a,b",
    "a:b:ro",
    "a=b,target=/",
    "it's",
    'quo"te',
    '"quoted"',
    "back\\slash\\",
    "new\nline",
    "-v",
    "--privileged",
    "$(id)",
    "{{.ID}}",
    "%2F",
    "grüße-世界",
    "...",
    "UPPER_lower-9",
    "tab\there",
    "x" * 200,
)
_ARGUMENTS = "import json, sys; print(json.dumps(sys.argv[1:]))"
_VARIABLES = "import json, os; print(json.dumps({n: v for n, v in os.environ.items() if n[:2] == 'V_'}))"
# The workspace's own file, and what is written there; where it is mounted, if not at /workspace.
_PLACE = "import os; print(os.getcwd()); print(open('mark').read()); open('made', 'w').write('made')"


def python(
    project: Project, engine: Engine, script: str, *arguments: str, settings: tuple[str, ...] = ()
) -> str:
    """Run a Python program on the host's tools on an engine; it has to succeed; return its output."""
    result = coop_run(
        project, engine, "/usr/bin/python3", "-I", "-S", "-c", script, *arguments, settings=settings
    )
    assert result.status == 0, result
    return result.out


@ENGINES
def test_arguments_arrive(engine: Engine, project: Project) -> None:
    """Whatever they look like, and however many there are."""
    assert json.loads(python(project, engine, _ARGUMENTS, *STRINGS)) == list(STRINGS)


@ENGINES
def test_values_of_variables_arrive(engine: Engine, project: Project) -> None:
    """Those that the Coopfile holds, and those that come from the host's environment."""
    values = [text for text in STRINGS if len(text) < 1000]
    # The language takes no other control characters.
    texts = [text for text in values if text.replace("\n", "").replace("\t", "").isprintable()]
    written = {f"V_WRITTEN_{number}": text for number, text in enumerate(texts)}
    passed = {f"V_PASSED_{number}": text for number, text in enumerate(values)}
    lines = [f"{name} = {json.dumps(text, ensure_ascii=False)}" for name, text in written.items()]
    lines += [f'{name} = {{ host = "HOST_{name}" }}' for name in passed]
    project.coopfile("[env]\n" + "\n".join(lines))
    project.environment.update({f"HOST_{name}": text for name, text in passed.items()})
    assert json.loads(python(project, engine, _VARIABLES)) == {**written, **passed}


@ENGINES
def test_workspaces_with_odd_names_are_mounted(engine: Engine, project: Project) -> None:
    """The directory itself, as the workspace and at its own path; its name does not upset the container's."""
    parent = project.directory
    nested = ["/".join(NAMES[start : start + 5]) for start in range(0, len(NAMES), 5)]
    for name in nested if engine.name == "docker" else nested[:2]:
        project.directory = project.mkdir(parent / name)
        project.write("mark", name)
        project.write("Coopfile", 'workspace.path = "host"\n')
        expected = f"{project.directory}\n{name}\n"
        assert python(project, engine, _PLACE) == expected, name
        assert (project.directory / "made").read_text() == "made"
    project.directory = parent
    assert engine.containers() == []


@ENGINES
def test_paths_of_the_host_with_odd_names_are_mounted(engine: Engine, project: Project) -> None:
    """files.read and files.write take what a directory may be called."""
    base = project.actor.directory("given")
    names = [name for name in NAMES if name.isprintable() and name == name.strip()]
    for name in names:
        for kind in ("read", "write"):
            project.write(str(base / kind / name / "file"), f"{kind} {name}")
    lists = {kind: [str(base / kind / name) for name in names] for kind in ("read", "write")}
    lines = [f"{kind} = {json.dumps(paths, ensure_ascii=False)}" for kind, paths in lists.items()]
    project.coopfile("[files]\n" + "\n".join(lines))
    script = (
        "import json, os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n        open(path + '/new', 'w').close()\n        done = 'written'\n"
        "    except OSError as error:\n        done = error.strerror\n"
        "    print(json.dumps([open(path + '/file').read(), done]))"
    )
    out = python(project, engine, script, *lists["read"], *lists["write"])
    found = [json.loads(line) for line in out.splitlines()]
    assert found == [[f"read {name}", "Read-only file system"] for name in names] + [
        [f"write {name}", "written"] for name in names
    ]


@ENGINES
def test_what_is_not_text_is_refused(engine: Engine, project: Project) -> None:
    """Engines would put other bytes in its place: argument, value and directory are named in the error."""
    wrong = os.fsdecode(b"a\xffb")
    result = coop_run(project, engine, "true", wrong)
    assert result.status == 125
    assert "the argument 'a\\udcffb' is not UTF-8" in result.err
    assert "use the native back end" in result.err

    project.coopfile('[env]\nGIVEN = { host = "GIVEN" }\n')
    result = coop_run(project, engine, "true", environment={"GIVEN": wrong})
    assert result.status == 125
    assert "the value of GIVEN is not UTF-8" in result.err
    assert "udcff" not in result.err  # it may be secret

    odd = project.mkdir(project.directory / wrong)
    (odd / "Coopfile").write_text("")
    project.directory = odd
    result = coop_run(project, engine, "true")
    assert result.status == 125
    assert "is not UTF-8" in result.err
    project.directory = odd.parent
    assert engine.containers() == []


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
@pytest.mark.parametrize(
    "reference",
    ["-v", "--privileged", "a b", "$(id)", "x;id", "UPPER", "a@sha256:0", "x\ny", "../x", "{{.ID}}"],
)
def test_references_that_are_none_are_refused(engine: Engine, project: Project, reference: str) -> None:
    """The language lets nothing through that an engine could take for something else."""
    settings = (f"base.image={json.dumps(reference)}",)
    result = coop_run(project, engine, "true", settings=settings)
    assert result.status in (2, 125), result
    assert "base.image" in result.err
    assert "error: " in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("engine", ["docker", "podman-rootless"], indirect=True)
def test_a_reference_with_every_part_arrives(engine: Engine, project: Project) -> None:
    """Separators of every kind, and the longest tag."""
    reference = f"localhost/a.b_c__d---e/f:{'T' * 64}.{'_' * 32}-{'9' * 30}"
    engine.output("tag", engine.image("busybox"), reference)
    result = coop_run(project, engine, "echo", "there", settings=(f"base.image={reference}",))
    engine.output("rmi", reference)
    assert (result.status, result.out) == (0, "there\n"), result


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_nothing_of_a_command_is_an_option(engine: Engine, project: Project) -> None:
    """A program that is called like an option is looked for, and not found."""
    for name in ("-x", "--privileged", "--"):
        result = coop_run(project, engine, "env", "--", name, settings=(image(engine, "busybox"),))
        assert result.status in (1, 127), result
    argv = [
        *project.argv([], options(engine, image(engine, "busybox"))),
        *("--", "--privileged", "true"),
    ]
    result = run(argv, b"", project.directory, project.environment)
    assert result.status == 127, result
    assert engine.containers() == []
