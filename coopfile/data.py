"""The data files beside the code: ``schema/`` and ``templates/``.

A wheel carries them in ``coopfile/_data``. A checkout, also one that is installed
as editable, has them at its top.
"""

from __future__ import annotations

import os

from coopfile.errors import CoopError


def path(name: str) -> str:
    """Return the absolute path of a data file or directory, such as ``schema/plan.schema.json``."""
    package = os.path.dirname(os.path.abspath(__file__))
    for root in (os.path.join(package, "_data"), os.path.dirname(package)):
        found = os.path.join(root, name)
        if os.path.exists(found):
            return found
    raise CoopError(f"this installation of coop lacks its file {name}", "install coopfile again")


def text(name: str) -> str:
    """Return the text of a data file, such as ``templates/Coopfile.j2``."""
    with open(path(name), encoding="utf-8") as file:
        return file.read()
