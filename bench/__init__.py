"""What the figures in README and docs come from."""
