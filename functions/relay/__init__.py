"""Holds the watch of the cluster for a quarter of an hour, and hands it over to the next invocation."""
