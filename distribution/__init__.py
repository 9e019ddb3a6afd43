"""How the wheel is built; no part of it."""
