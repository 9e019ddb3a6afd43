"""Nodes that nobody needs are found and given up."""
