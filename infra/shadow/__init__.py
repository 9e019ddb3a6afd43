"""The stack of one cluster in shadow mode."""
