"""The admission webhook: a hint for each batch of new pods, in place of a relay in the cluster."""
