"""What only one of the cluster and EC2 knows: NodeClaims, nodes, instances, launch templates, leases."""
