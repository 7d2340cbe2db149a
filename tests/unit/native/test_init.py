"""PID 1 on its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coopfile.native.confine import FAILED

PASS = """
import os, sys, types
from coopfile.native import init
gate, opener = os.pipe()
os.write(opener, b"1")
if sys.argv[1] == "dead":
    os.close(opener)
init._pass_gate(types.SimpleNamespace(gate=gate, monitor=0, network=None), [])
"""


@pytest.mark.parametrize(("monitor", "status"), [("alive", 0), ("dead", FAILED)])
def test_gate(monitor: str, status: int) -> None:
    """A monitor that opened the gate and died before it could be missed is missed all the same."""
    done = subprocess.run([sys.executable, "-c", PASS, monitor], timeout=60, check=False)
    assert done.returncode == status
