"""``python -m functions.relay``."""

from __future__ import annotations

import sys

from functions.relay.main import main

sys.exit(main())
