"""``tenon rollback``: whether the nodes let the control plane go back to an older minor version."""
