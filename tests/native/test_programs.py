"""The programs that the README names work on this machine's kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.native


def call(*argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the checkout with the tests' interpreter."""
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every outcome of `make demo` is as its Coopfile says, and its directory is gone afterwards."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = call("scripts/demo.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "allowed  write a file in the workspace" in done.stdout
    assert "denied   plant a git hook" in done.stdout
    assert os.listdir(tmp_path) == []


def test_bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make bench` measures coop beside the interpreter, says what it left out, and leaves nothing."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = call("-m", "bench", "-n", "1", "--only", "python,coop", "--no-images")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "coop run -- true" in done.stdout
    assert "skipped" not in done.stdout
    assert os.listdir(tmp_path) == []
