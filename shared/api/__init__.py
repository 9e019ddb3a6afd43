"""The kinds that users write and read, as small frozen structs of the fields we use.

This package imports nothing else of ours, so that every other part can speak in its terms.
"""
