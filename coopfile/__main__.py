"""Allow ``python -m coopfile``."""

import sys

from coopfile.cli.main import main

sys.exit(main())
