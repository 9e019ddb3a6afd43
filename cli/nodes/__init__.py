"""``tenon nodes``: every node with how full it is, what it costs and what becomes of it, live."""
