"""Allow ``python -m coopfile``."""

from coopfile.cli.main import entry

entry()
