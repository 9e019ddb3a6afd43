"""Pods without a place, or about to lose theirs, become claims, and claims become instances."""
