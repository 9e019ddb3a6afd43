"""The result of a decision: NodeClaims, and why pods stay unschedulable."""
