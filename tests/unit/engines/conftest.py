"""Stand-ins for engines' command lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Install = Callable[..., dict[str, str]]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Return what puts stand-ins for command lines on a PATH of their own, and returns the environment."""
    directory = tmp_path / "programs"
    directory.mkdir()

    def put(**programs: str) -> dict[str, str]:
        for name, text in programs.items():
            (directory / name).write_text(text)
            (directory / name).chmod(0o755)
        for tool in ("sh", "cat", "sleep"):
            if not (directory / tool).exists():
                (directory / tool).symlink_to(f"/bin/{tool}")
        return {"PATH": str(directory), "HOME": str(tmp_path)}

    return put
