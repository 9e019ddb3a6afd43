"""The catalog of instance types: shapes, allocatable arithmetic, offerings, prices."""
