"""AMI families: their volumes and kubelet settings, the AMIs that AWS publishes for them, and their user data."""
