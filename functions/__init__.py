"""The functions: one folder each, with a thin handler.

A handler parses its event, calls ``shared`` and reports; no function imports another.
"""
