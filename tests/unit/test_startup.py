"""Bundles: one file of what the usual commands import, as good as the modules by themselves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import coopfile
from coopfile import startup

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what bundles hold is for Linux")

FACTS = """
import importlib, sys
from coopfile import startup
if sys.argv[1] == "bundle":
    assert startup.load("run")
modules = {name: importlib.import_module("coopfile." + name) for name in startup.BUNDLES["run"]}
for name, module in modules.items():
    spec = module.__spec__
    print(name, module.__name__, module.__file__, module.__package__, getattr(module, "__path__", None))
    print(spec.name, spec.origin, spec.cached, spec.has_location, spec.submodule_search_locations)
    print(spec.parent, type(spec.loader), type(module.__loader__))
    print(getattr(sys.modules[module.__package__], name.rpartition(".")[2], None) is module)
    print(sorted(set(vars(module)) - {"__cached__", "__annotations__", "annotations"}))
"""

FIRST = {"items": "run", "image": "run", "proxy": "run", "attached": "exec"}  # what is loaded before


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A copy of the package, with no bundle yet."""
    found = tmp_path / "library"
    source = Path(coopfile.__file__).parent
    shutil.copytree(source, found / "coopfile", ignore=shutil.ignore_patterns("__pycache__"))
    return found


def python(library: Path, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python with that copy first on its path."""
    environment = {**os.environ, "PYTHONPATH": str(library), "PYTHONDONTWRITEBYTECODE": ""}
    environment.pop("PYTHONPYCACHEPREFIX", None)
    command = [sys.executable, "-W", "error", *options, "-c", *arguments]
    return subprocess.run(command, cwd=library, env=environment, capture_output=True, text=True, timeout=60)


def output(library: Path, *arguments: str) -> str:
    """Return what Python prints, which succeeds."""
    done = python(library, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(library: Path) -> None:
    """Write the bundle of runs."""
    assert output(library, "from coopfile import bundle; bundle.write('run')") == ""


def is_loaded(library: Path) -> bool:
    """Tell whether the bundle of runs counts."""
    return output(library, "from coopfile import startup; print(startup.load('run'))") == "True\n"


def bundle(library: Path) -> Path:
    """Return where that bundle lies."""
    return library / "coopfile/__pycache__" / Path(startup.path("run")).name


def test_modules_are_the_same(library: Path) -> None:
    """A module out of a bundle is what the import system would have made."""
    write(library)
    assert output(library, FACTS, "bundle") == output(library, FACTS, "import")


@pytest.mark.parametrize("name", sorted(startup.BUNDLES))
def test_order(library: Path, name: str) -> None:
    """Loading a bundle imports no module of coopfile's by itself: each stands behind those it imports."""
    names = [FIRST[name], name] if name in FIRST else [name]
    output(library, f"from coopfile import bundle; [bundle.write(name) for name in {names}]")
    text = f"from coopfile import startup; assert all([startup.load(name) for name in {names}])"
    done = python(library, text, options=("-X", "importtime"))
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^import time:.*\| +(coopfile\S*)$", done.stderr, re.MULTILINE)
    assert sorted(found) == ["coopfile", "coopfile.startup"]


def test_an_edit_counts_at_once(library: Path) -> None:
    """A bundle counts while every source is as it was, and counts again when it has been written again."""
    assert not is_loaded(library)
    write(library)
    assert is_loaded(library)
    source = library / "coopfile/native/tree.py"
    status = source.stat()
    text = source.read_text()
    source.write_text(text + "# longer\n")
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert not is_loaded(library)
    write(library)
    assert is_loaded(library)
    source.write_text(text.replace("moving into it", "MOVING into it"))
    os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + 1_000_000_000))
    assert not is_loaded(library)


def test_moved(library: Path, tmp_path: Path) -> None:
    """A package that was moved does without the bundle of its old place, though that was made anew."""
    write(library)
    moved = library.rename(tmp_path / "moved")
    assert not is_loaded(moved)
    shutil.copytree(moved, library)
    assert not is_loaded(moved)
    assert is_loaded(library)


@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "flipped", "version"])
def test_damaged(library: Path, damage: str) -> None:
    """A damaged bundle, or one of another Python, does not count."""
    write(library)
    file = bundle(library)
    data = bytearray(file.read_bytes())
    if damage == "empty":
        data.clear()
    elif damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "zeros":
        data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    elif damage == "flipped":
        data[1000] ^= 1
    else:
        data[0] ^= 1
    file.write_bytes(data)
    assert not is_loaded(library)


def test_only_in_the_program(library: Path) -> None:
    """In somebody's program, whose threads import too, nothing comes out of bundles."""
    write(library)
    text = "import sys; from coopfile import startup; startup.load_more('run'); "
    text += "print('coopfile.cli' in sys.modules)"
    assert output(library, text) == "False\n"


def test_a_module_that_fails(library: Path) -> None:
    """Of a module that cannot be imported who imports it is told, as without a bundle."""
    source = library / "coopfile/native/runner.py"
    source.write_text(source.read_text() + "raise RuntimeError('broken')\n")
    write(library)
    assert is_loaded(library)
    done = python(library, "from coopfile import startup; startup.load('run'); import coopfile.native.runner")
    assert done.stderr.endswith("RuntimeError: broken\n") and "runner.py" in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_place(library: Path) -> None:
    """Where no bundle can be written there is none, and nobody is bothered."""
    cache = library / "coopfile/__pycache__"
    output(library, "import coopfile.bundle")
    cache.chmod(0o555)
    try:
        write(library)
        assert not bundle(library).exists()
    finally:
        cache.chmod(0o755)


def test_an_interrupt_while_it_loads(library: Path) -> None:
    """Ctrl-C ends the program without a word also before the command line is read."""
    script = "def load(name): raise KeyboardInterrupt\nstartup.load, sys.argv = load, ['coop', 'exec']\n"
    result = python(library, f"import sys\nfrom coopfile import startup\n{script}startup.entry()")
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("run -- true", "run"),
        ("-q run -- true", "run"),
        ("-C elsewhere --as somebody run true", "run"),
        ("--set network.mode=none exec work -- true", "exec"),
        ("run --session work -- true", None),
        ("plan run", None),
        ("--version", None),
        ("", None),
    ],
)
def test_which_is_loaded(monkeypatch: pytest.MonkeyPatch, line: str, name: str | None) -> None:
    """A verb's bundle is loaded wherever the verb stands on the command line."""
    loaded: list[str] = []
    monkeypatch.setattr(sys, "argv", ["coop", *line.split()])
    monkeypatch.setattr(startup, "load", loaded.append)
    monkeypatch.setattr("coopfile.cli.main.main", lambda: 0)
    assert startup._run() == 0
    assert loaded == ([] if name is None else [name])


def test_keeping(library: Path) -> None:
    """What is kept is freed in no run of the program, and as ever in other programs."""
    kept = """
import os, sys
from coopfile import startup
class Value:
    def __del__(self):
        os.write(1, b"freed\\n")
def main():
    startup.keep(Value())
    return 0
if sys.argv[1] == "program":
    import coopfile.cli.main
    coopfile.cli.main.main = main
    startup.entry()
main()
"""
    assert output(library, kept, "program") == ""
    assert output(library, kept, "other") == "freed\n"
