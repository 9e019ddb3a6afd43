"""``tenon simulate``: the scheduling decision for the objects in some files."""
