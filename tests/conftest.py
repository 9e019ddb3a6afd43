"""For all tests: properties are held on any machine, however busy, and always on the same examples.

Only the long ones (``@settings(settings.get_profile("fresh"), ...)``) look at new examples; what fails once is
kept in ``.hypothesis`` and tried first from then on.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fresh", deadline=None, derandomize=False, print_blob=True)
settings.register_profile("tenon", deadline=None, derandomize=True)
settings.load_profile("tenon")
