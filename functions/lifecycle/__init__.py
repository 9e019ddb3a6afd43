"""The lifecycle function: NodeClaim registration and liveness, statuses, garbage collection, metrics."""
