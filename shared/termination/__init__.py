"""Termination, as far as several functions take part: requeue times, delayed evictions, and what is garbage."""
