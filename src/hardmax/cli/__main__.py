"""``python -m hardmax.cli`` is ``hardmax``."""

import sys

from hardmax.cli import main

sys.exit(main())
