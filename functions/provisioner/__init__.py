"""Pending pods become claims, and claims become instances."""
