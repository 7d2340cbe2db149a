"""What is published works: the wheel, built of the sdist, has everything and starts from anywhere."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import coopfile

ROOT = Path(__file__).resolve().parents[2]


def call(*argv: str | Path, cwd: Path) -> str:
    """Run a command that has to succeed, in a clean environment, and return its output."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COOP_", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, then the wheel out of the sdist, with the build backend of this environment."""
    target = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, ROOT, cwd=target)
    return target


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """Return the one wheel."""
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what its metadata requires into a clean environment; return its ``coop``.

    The requirements are copied from this environment, so no network is needed.
    """
    target = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(target, with_pip=False, symlinks=True)
    python = target / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "-qq", "install", "--no-deps", "--no-index")
    call(*pip, wheel, cwd=target)
    (packages,) = target.glob("lib/python3*/site-packages")
    metadata = importlib.metadata.Distribution.at(next(packages.glob("coopfile-*.dist-info")))
    copy_requirements(metadata.requires or [], packages, set())
    return target / "bin" / "coop"


def copy_requirements(requirements: list[str], packages: Path, seen: set[str]) -> None:
    """Copy distributions of this environment, and what they require, into another."""
    for requirement in map(Requirement, requirements):
        if requirement.name in seen or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        seen.add(requirement.name)
        distribution = importlib.metadata.distribution(requirement.name)
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                copy = packages / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(distribution.locate_file(file)), copy)
        copy_requirements(distribution.requires or [], packages, seen)


def test_wheel_content(wheel: Path) -> None:
    """The wheel has the code, the typing marker, schemas, templates and licence, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "coopfile/py.typed",
        "coopfile/_data/schema/coopfile.schema.json",
        "coopfile/_data/schema/plan.schema.json",
        "coopfile/_data/templates/Coopfile.j2",
    } <= names
    assert {
        f"coopfile/{path.relative_to(ROOT / 'coopfile')}" for path in ROOT.glob("coopfile/**/*.py")
    } <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    strangers = {
        name
        for name in names
        if not name.startswith((f"coopfile-{coopfile.__version__}.dist-info/", "coopfile/"))
        or "__pycache__" in name
    }
    assert strangers == set()


def test_sdist_content(built: Path) -> None:
    """The sdist has what building and testing need, and no caches or environments."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "schema/plan.schema.json", "Makefile"} <= names
    assert not {name.partition("/")[0] for name in names} & {".venv", ".git", ".mypy_cache", ".hypothesis"}


def test_version(installed: Path, tmp_path: Path) -> None:
    """``coop --version`` says the version of the package."""
    assert call(installed, "--version", cwd=tmp_path).split() == ["coop", coopfile.__version__]


@pytest.mark.parametrize(("option", "title"), [((), "Coopfile"), (("--plan",), "Coop plan")])
def test_schema_travels(installed: Path, tmp_path: Path, option: tuple[str, ...], title: str) -> None:
    """``coop schema`` prints the files of the checkout from the installed wheel."""
    name = "plan" if option else "coopfile"
    printed = json.loads(call(installed, "schema", *option, cwd=tmp_path))
    assert printed == json.loads((ROOT / "schema" / f"{name}.schema.json").read_text())
    assert title in printed["title"]


def test_first_steps(installed: Path, tmp_path: Path) -> None:
    """``init``, ``check`` and ``plan`` work in a directory that has nothing to do with the checkout."""
    (tmp_path / "pyproject.toml").touch()
    assert "Python" in call(installed, "init", cwd=tmp_path)
    assert call(installed, "check", cwd=tmp_path) == "no problems found\n"
    plan = json.loads(call(installed, "plan", "--json", cwd=tmp_path))
    assert plan["workspace"]["path"] == "host"


def test_typed_for_its_users(installed: Path, tmp_path: Path) -> None:
    """A program that uses the package gets its types from the wheel, under mypy --strict."""
    program = tmp_path / "program.py"
    program.write_text(
        "from coopfile.plan.model import Plan\n\ndef mode(plan: Plan) -> str:\n    return plan.network.mode\n"
    )
    python = installed.with_name("python")
    mypy = (sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--python-executable", python)
    assert "Success" in call(*mypy, program, cwd=tmp_path)
