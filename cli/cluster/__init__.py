"""The cluster that an operator asks about: read from its API and AWS, or from files; never written to."""
