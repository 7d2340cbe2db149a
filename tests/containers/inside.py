"""Running the probes in a sandbox: a program of its own, given to the sandbox's Python as text.

``python3 -I -c LOADER MODULES FACTS``: MODULES are texts by name, and FACTS is what the host
knows, both as JSON. It prints the verdicts by name, as JSON. Each probe is a function; its
docstring says what it shows. A verdict is a short text that does not depend on the machine.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.containers import attempts, inside_files, inside_system
from tests.containers.attempts import FACTS, PATIENCE, PROBES

# There the modules are no files, but what is loaded already is imported all the same.
LOADER = """
import json, sys, types
for name, text in json.loads(sys.argv.pop(1)).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""


def program() -> tuple[str, str]:
    """Return LOADER and MODULES, for the sandbox's Python."""
    modules = (attempts, inside_files, inside_system, sys.modules[__name__])
    texts = {module.__name__: Path(str(module.__file__)).read_text() for module in modules}
    return LOADER, json.dumps({"tests": "", "tests.containers": "", **texts})


def sentences() -> dict[str, str]:
    """Return what each probe shows, by its name."""
    return {name: " ".join((function.__doc__ or "").split()) for name, function in PROBES.items()}


def main() -> None:
    """Run every probe in a process of its own, and print all verdicts."""
    FACTS.update(json.loads(sys.argv[1]))
    verdicts = {}
    for name, function in PROBES.items():
        verdicts[name] = _alone(function)
    leave_behind()
    print(json.dumps(verdicts), flush=True)
    sys.stdin.read(1)  # the host looks at the sandbox meanwhile


def _alone(function: Callable[[], str]) -> str:
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        signal.alarm(PATIENCE)
        try:
            verdict = function()
        except BaseException as error:
            verdict = f"{type(error).__name__}: {error}"
        os.write(send, verdict.encode(errors="replace")[:4000])
        os._exit(0)
    os.close(send)
    with open(receive, "rb") as file:
        verdict = file.read().decode()
    _, status = os.waitpid(pid, 0)
    return verdict or f"ended with status {status}"


def leave_behind() -> None:
    """Start a process that nobody waits for, marked by an argument."""
    subprocess.Popen(
        ["sleep", "".join(FACTS["mark"])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
