"""What the helper does before it forks sessions."""

from __future__ import annotations

import subprocess
import sys

import pytest

PRACTISE = """
import sys
from coopfile.session import practice
practice._MOMENT = float(sys.argv[1])
practice.practise("coop")
print("alive")
"""


@pytest.mark.parametrize("moment", ["0", "0.001"])
def test_practising_ends_nobody(moment: str) -> None:
    """A helper that is slow, and does not wait for the signal that it has sent itself, lives on."""
    done = subprocess.run(
        [sys.executable, "-c", PRACTISE, moment], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"alive\n", b"")
