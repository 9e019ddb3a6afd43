"""``python -m bench.month``: the month of each load under Tenon's decisions and under Karpenter's rules."""

from __future__ import annotations

import sys

from bench.month.comparison import main

if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
