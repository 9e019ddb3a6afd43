"""``tenon shadow``: what Tenon would have done and cost next to another autoscaler."""
