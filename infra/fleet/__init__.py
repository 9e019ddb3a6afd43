"""The stack that the clusters of a fleet share."""
