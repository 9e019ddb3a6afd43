"""Instance types: hardware, labels, allocatable resources, offerings and prices."""
