"""The termination function: drains nodes, evicts pods, terminates instances and removes finalizers."""
