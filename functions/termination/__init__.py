"""Nodes are drained and their instances terminated."""
