"""File tools against a command in the same sandbox, which swaps what they are about to touch.

``COOP_RACE`` is for how many seconds each race goes on.
"""

# ruff: noqa: E501  (attack programs, and tables of what they try)
from __future__ import annotations

from pathlib import Path

import pytest

from tests.sandboxes import Project, tree
from tests.toollab import RACE, Tools, tools

__all__ = ["tools"]

pytestmark = pytest.mark.native

GUARDS = """
[workspace]
protect = ["release.sh", "locked"]
[files]
hide = ["**/.env*", "secrets"]
"""

# Renames, links, exchanges (renameat2: 316 or 276) and kinds of files, as fast as it can be.
RACER = r"""
import ctypes, os, random, sys
outside, call = sys.argv[1], 316 if os.uname().machine == "x86_64" else 276
libc = ctypes.CDLL(None)
targets = [outside, "../outside", "../../../../.." + outside, "secrets", ".env", "locked", "release.sh", "..",
           "/workspace/secrets", "/proc/1/root", "/proc/self/cwd/..", "/etc", "real"]
os.makedirs("real", exist_ok=True); os.makedirs("d", exist_ok=True); os.makedirs("e/d", exist_ok=True)

def attempt(action, *arguments, **named):
    try:
        action(*arguments, **named)
    except OSError:
        pass

def clear(path):
    attempt(os.unlink, path); attempt(os.rmdir, path)
    attempt(os.rename, path, f"trash/{random.random()}")

def file(path):
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o644)
        os.write(descriptor, b"x" * 10)
        os.close(descriptor)
    except OSError:
        pass

os.makedirs("trash", exist_ok=True)
rounds = 0
while True:
    target = random.choice(targets)
    for path in ("d", "d/file", "e/d", "file"):
        clear(path)
        kind = random.random()
        if kind < 0.4:
            attempt(os.symlink, target, path)
        elif kind < 0.5:
            attempt(os.mkfifo, path)
        elif kind < 0.8 and path != "d/file":
            attempt(os.mkdir, path); file(path + "/file"); file(path + "/.env")
        else:
            file(path)
    attempt(os.symlink, random.choice(targets), "swap")
    for path in ("d", "file", "e", "d/file"):
        libc.syscall(call, -100, b"swap", -100, path.encode(), 2)
    clear("swap")
    rounds += 1
    if rounds == 50:
        open("raced", "w").close()
"""

LOOP = """
told = {"ok": 0, "error": 0}
paths = ["d", "d/file", "d/key", "d/.env", "d/in", "e/d/file", "file", "d/../file", "d/../.env", "e/../secrets/key",
         "d/../release.sh", "d/d/file", "d/../locked/in", "file/..", "d/passwd", "d/outside/secret", "d/secret"]
while not os.path.exists("raced"):
    time.sleep(0.01)
end = time.monotonic() + SECONDS
number = 0
while time.monotonic() < end:
    path = paths[number % len(paths)]
    number += 1
    for name, arguments in (("read_file", {}), ("write_file", {"content": "TOUCHED"}),
                            ("edit_file", {"old_text": "SECRET", "new_text": "TOUCHED"})):
        result = executor.execute(name, {"path": path, **arguments})
        told["error" if result.error else "ok"] += 1
        if "SECRET" in result.text or "root:" in result.text:
            print("LEAKED", name, path, result.text)
print(told["ok"] > 0, told["error"] > 0, told)
"""


def prepared(project: Project, outside: Path) -> dict[str, tuple[object, ...]]:
    """Make a workspace with guards, and something outside of it; return what must not change."""
    project.coopfile(GUARDS)
    for name in (".env", "secrets/key", "deep/.env.x"):
        project.write(name, "SECRET")
    for name in ("release.sh", "locked/in"):
        project.write(name, "good")
    for name in ("secret", "key", "file", ".env", "in", "passwd"):
        project.write(str(outside / name), "SECRET")
    return kept(project, outside)


def kept(project: Project, outside: Path) -> dict[str, tuple[object, ...]]:
    """Return all that no tool may touch."""
    found: dict[str, tuple[object, ...]] = {f"outside/{name}": value for name, value in tree(outside).items()}
    for name, value in project.tree().items():
        if name.split("/")[0] in (".env", "secrets", "release.sh", "locked", "Coopfile", "deep"):
            found[name] = value
    return found


def test_links_that_are_swapped(project: Project, tools: Tools) -> None:
    """While a command renames, links and exchanges, tools touch and tell nothing outside, hidden or protected."""
    outside = project.mkdir(project.directory.parent / f"{project.directory.name}-outside")
    before = prepared(project, outside)
    project.write("racer.py", RACER)
    start = f'call("bash", command="for i in 1 2; do python3 racer.py {outside} >/dev/null 2>&1 & done")\n'
    result = tools(start + LOOP.replace("SECONDS", str(RACE)))
    assert "LEAKED" not in result.out
    assert result.out.startswith("True True"), result.out
    assert kept(project, outside) == before


def test_a_session_that_ends_meanwhile(project: Project, tools: Tools) -> None:
    """A command that ends its own session, and with it the mounts that guard, gets no tool to look behind them."""
    outside = project.mkdir(project.directory.parent / f"{project.directory.name}-outside")
    before = prepared(project, outside)
    result = tools(
        f"""
over = time.monotonic() + {RACE}
def end():
    while time.monotonic() < over:
        call("bash", command="kill -9 -1")
thread = threading.Thread(target=end); thread.start()
count = 0
while time.monotonic() < over:
    for path in (".env", "secrets/key", "deep/.env.x"):
        result = executor.execute("read_file", {{"path": path}})
        count += 1
        if not result.error or "SECRET" in result.text:
            print("LEAKED", path, result.text)
    for path in ("release.sh", "locked/in", ".git/hooks/x", "secrets/key"):
        result = executor.execute("write_file", {{"path": path, "content": "TOUCHED"}})
        if not result.error:
            print("WRITTEN", path)
thread.join()
print(count > 0)
"""
    )
    assert result.out.splitlines() == ["True"]
    assert kept(project, outside) == before
    assert not (project.directory / ".git").exists()


def test_what_is_held_of_a_session_that_has_ended(project: Project, tools: Tools) -> None:
    """Guards are there as long as the workspace's descriptor is, whatever has become of the session."""
    project.coopfile(GUARDS)
    project.write(".env", "SECRET")
    project.write("release.sh", "good")
    result = tools("""
session = coopfile.Session(coopfile.compile(), name="ends")
session.exec(["true"])
held = session.workspace()
session.destroy(forget=True)
for name in (".env", "release.sh"):
    for flags in (os.O_RDONLY, os.O_RDWR):
        try:
            print(name, os.read(os.open(name, flags, dir_fd=held[0]), 10))
        except OSError as error:
            print(name, error.strerror)
""")
    readable = [] if project.actor.name == "user" else [".env b''"]
    assert [line for line in result.out.splitlines() if "b'" in line] == [*readable, "release.sh b'good'"]


def test_what_a_command_makes_of_a_new_file(project: Project, tools: Tools) -> None:
    """A file that is written is nobody's who swaps it: what tools make is never outside, nor set-id."""
    outside = project.mkdir(project.directory.parent / f"{project.directory.name}-outside")
    before = prepared(project, outside)
    project.write(
        "grab.py",
        "import os\nwhile True:\n for n in os.listdir('.'):\n  if n.startswith('.coop-') or n == 'target':\n"
        f"   for act in (lambda: os.unlink(n), lambda: os.symlink({str(outside / 'secret')!r}, n),\n"
        "               lambda: os.chmod(n, 0o6777), lambda: os.link(n, 'kept')):\n"
        "    try: act()\n    except OSError: pass\n",
    )
    result = tools(
        f"""
call("bash", command="python3 grab.py >/dev/null 2>&1 &")
over = time.monotonic() + {RACE}
while time.monotonic() < over:
    call("write_file", path="target", content="TOUCHED")
    call("edit_file", path="target", old_text="TOUCHED", new_text="TOUCHED again")
"""
    )
    assert result.out == ""
    assert kept(project, outside) == before
    assert not [name for name, value in project.tree().items() if int(str(value[0]), 8) & 0o6000]
