"""Statuses of NodePools, node classes, NodeOverlays and CapacityBuffers, and the conditions of invalid objects."""
