"""Kubelets: from user data to registered nodes, and the pods on them, as far as a cluster sees them."""
