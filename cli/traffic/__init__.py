"""Traffic between availability zones, as far as it follows from Services and from where pods run."""
