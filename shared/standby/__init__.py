"""Standby nodes: stopped instances that start in seconds, for NodePools whose annotation asks for them.

``held_nodes`` hides them from decisions, ``starting`` uses them in place of new nodes, ``purchases`` buys missing ones
and ``removal`` says which go. Their Node objects are followed by the lifecycle function. See docs/standby-nodes.md.
"""
