"""``tenon plan``: what would be launched and what would go, in a cluster as it is or as it might be."""
