"""Kubernetes, as the functions use it: token, client, snapshot, lease, writes, eviction, events."""
