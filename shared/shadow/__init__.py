"""Shadow mode's record: the virtual fleet, what ran and what would have, by day; and where it is kept."""
