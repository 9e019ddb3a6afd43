"""Nodes for machines: what happens on an instance between its launch and its end, as far as a cluster sees it."""
