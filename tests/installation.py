"""A copy of coop and of all that it needs, for users who cannot read the checkout or its environment."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def install(checkout: Path, library: Path, script: Path) -> tuple[str, ...]:
    """Copy the packages to ``library``, and write a script that runs coop from there; return its argv."""
    library.mkdir(exist_ok=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(checkout / "coopfile", library / "coopfile", ignore=ignored)
    for name in ("schema", "templates"):
        shutil.copytree(checkout / name, library / "coopfile" / "_data" / name)
    for distribution in _dependencies("tomli", "jsonschema", "jinja2", "oras", "backports.zstd"):
        for file in distribution.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                target = library.joinpath(*file.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), target)
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(library)!r})\nfrom coopfile.startup import entry\nentry()\n"
    )
    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    subprocess.run([python, "-I", "-m", "compileall", "-q", str(library)], check=True, timeout=120)
    subprocess.run(["chmod", "-R", "a+rX,go-w", str(library), str(script)], check=True, timeout=60)
    return python, "-I", str(script)


def _dependencies(*names: str) -> list[importlib.metadata.Distribution]:
    """Return the installed distributions of some names and of all that they need."""
    found: dict[str, importlib.metadata.Distribution] = {}
    pending = list(names)
    while pending:
        name = re.sub(r"[-_.]+", "-", pending.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on other Pythons only
        for requirement in found[name].requires or ():
            if "extra ==" not in requirement:
                pending.append(re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0])
    return list(found.values())
