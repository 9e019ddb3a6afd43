"""The pages of docs that are written from code: ``python -m docs.generate``."""
