"""For all tests: properties are held on any machine, however busy, and on the same examples wherever a change lands."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("tenon", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tenon")
