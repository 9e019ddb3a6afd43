"""``tenon explain``: why a pod waits, a node is kept or a pool doesn't launch, the reason first."""
