"""``tenon``, the command line."""
