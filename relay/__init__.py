"""Runs in the cluster: watches it, and puts hints on the event bus."""
