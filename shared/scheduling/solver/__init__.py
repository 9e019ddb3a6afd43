"""Places pod groups on existing nodes and on the cheapest new ones."""
