"""``tenon demo``: the whole system on this machine, shown as it works."""
