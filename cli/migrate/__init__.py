"""``tenon migrate``: takes over the work of another autoscaler, and gives it back."""
