"""Fetches and stores instance types, offerings and prices."""
