"""The functions, one folder each. None imports another.

A cold start creates many objects that stay. With Python's default thresholds the cyclic garbage collector walks them
again and again during the imports, which takes a tenth of their time, so it starts later here.
"""

import gc

gc.set_threshold(10_000, 20, 50)
