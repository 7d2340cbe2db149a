"""Reading one's own files whatever their modes are: nothing else is gained by it, and no process is left."""

from __future__ import annotations

from pathlib import Path

from tests.sandboxes import Actor

_PROGRAM = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
from coopfile.errors import CoopError
from coopfile.native.owner import as_owner

def content(path):
    with open(path) as file:
        yield (file.read(),)

def raising(error):
    yield ("first",)
    raise error

def endless():
    while True:
        yield ("x" * 1000,)

def killed():
    yield ("x" * 100_000,)
    os.kill(os.getpid(), signal.SIGKILL)

def tried(produce):
    try:
        return [item[0][:10] for item in as_owner(produce)]
    except (CoopError, OSError, RuntimeError) as error:
        return f"{type(error).__name__} {getattr(error, 'remedy', '')} {error}"

def status():
    with open("/proc/self/status") as file:
        lines = dict(line.split(":\\t", 1) for line in file.read().splitlines())
    yield (" ".join(lines[key] for key in ("CapEff", "NoNewPrivs")),)

own, others = sys.argv[2:]
print(tried(lambda: content(own)))
print(tried(lambda: content(others)))
print(tried(lambda: raising(CoopError("no", "so"))))
print(tried(lambda: raising(FileNotFoundError(2, "gone", "/x"))))
print(tried(lambda: raising(ValueError("bug"))))
print(tried(killed))
print([item[0] for item in as_owner(status)])
items = as_owner(endless)
next(items)
items.close()
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("nothing is left")
"""


def test_as_owner(actor: Actor) -> None:
    """Files of one's own can be read, others' cannot; errors come out as they are; the child always ends."""
    own = actor.directory("owned") / "secret"
    own.write_text("mine")
    own.chmod(0)
    actor.own(own)
    others = "/etc/shadow" if actor.name == "user" else "/proc/1/mem"
    library = str(Path(actor.coop[-1]).parent / "lib")
    done = actor.run(actor.coop[0], "-I", "-c", _PROGRAM, library, str(own), others)
    assert done.status == 0, done
    lines = done.out.splitlines()
    assert lines[0] == "['mine']"
    assert "Permission denied" in lines[1] or "Input/output error" in lines[1], lines[1]
    assert lines[2] == "CoopError so no"
    assert lines[3] == "FileNotFoundError  [Errno 2] gone: '/x'"
    assert lines[4] == "RuntimeError  in a child: ValueError: bug"
    assert lines[5].startswith("CoopError try again")
    assert lines[6] == "['0000000000000002 1']"
    assert lines[7] == "nothing is left"
