"""The Python guide as a test: its examples, one after the other, in the current directory."""

from __future__ import annotations

import doctest
import re
import sys
from pathlib import Path


def examples(path: Path) -> str:
    """Return the interactive examples of a guide, as doctest takes them."""
    return "\n".join(re.findall(r"```pycon\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL))


def run(path: Path) -> doctest.TestResults:
    """Run them; what is wrong is printed."""
    test = doctest.DocTestParser().get_doctest(examples(path), {}, path.name, str(path), 0)
    return doctest.DocTestRunner().run(test)


if __name__ == "__main__":
    results = run(Path(sys.argv[1]))
    print(f"{results.attempted} examples")
    sys.exit(results.failed > 0)
