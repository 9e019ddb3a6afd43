"""EBS volumes as a resource of new nodes: how many pods attach, and how many a node takes.

A node that exists has a CSINode with the limits of each driver, and existing capacity counts volumes by name. For nodes
that don't exist yet, packing counts amounts: the volumes that no other pending pod mounts.
"""

ATTACHED_VOLUMES = "attachable-volumes-aws-ebs"
"""The resource; the name is that of Kubernetes' in-tree driver. It is in no object."""
NO_LIMIT = 1 << 30
"""More volumes than any node has."""
