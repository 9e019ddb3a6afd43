"""Decides which pods run on which existing or new nodes, and why others can't. Pure: values in, values out.

``rules``, ``state``, ``topology``, ``solver`` and ``results`` build on each other in this order; ``scheduler`` is the
entry. See docs/scheduling.md.
"""
