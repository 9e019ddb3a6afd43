"""``tenon shadow``: what Tenon would have done and cost beside another autoscaler."""
