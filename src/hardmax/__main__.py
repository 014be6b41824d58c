"""``python -m hardmax`` is ``hardmax``."""

import sys

from hardmax.cli import main

sys.exit(main())
