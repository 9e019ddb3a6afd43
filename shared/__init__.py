"""Everything the functions share."""
