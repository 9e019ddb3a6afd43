"""``python -m relay``."""

from __future__ import annotations

import sys

from relay.main import main

sys.exit(main())
