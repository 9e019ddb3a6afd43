"""``tenon catalog``: instance types with capacity, labels and offerings, simulated or of an AWS account."""
