"""What a command does to the caller's terminal is undone at its end."""

from __future__ import annotations

import os
import stat
import subprocess
import termios

import pytest

from tests.sandboxes import Project

pytestmark = pytest.mark.native


@pytest.mark.parametrize("ending", ["exit 3", "kill -9 $$"])
def test_settings_and_mode_are_put_back(project: Project, ending: str) -> None:
    """Echo that was switched off, a device opened for all or not waiting: all is as before at the end."""
    terminal, device = os.openpty()
    if project.actor.uid != os.geteuid():
        os.fchown(device, project.actor.uid, project.actor.gid)
    os.fchmod(device, 0o620)
    before = termios.tcgetattr(device)
    script = "stty -echo raw </dev/stdin; chmod 666 /proc/self/fd/0; stat -Lc %a /proc/self/fd/0; "
    script += f"python3 -c 'import os; os.set_blocking(0, False)'; {ending}"
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *project.argv(["bash", "-c", script])],
        stdin=device,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=project.environment,
        cwd=project.actor.base,
    )
    output, _ = process.communicate(timeout=60)
    assert output.split()[-1] == b"666"
    assert process.returncode == (3 if ending == "exit 3" else 137)
    assert termios.tcgetattr(device) == before
    assert stat.S_IMODE(os.fstat(device).st_mode) == 0o620
    assert os.get_blocking(device)
    os.close(terminal)
    os.close(device)
