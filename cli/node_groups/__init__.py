"""``tenon node-groups``: the node groups that Tenon would scale, and what keeps it from one."""
