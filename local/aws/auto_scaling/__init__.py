"""Auto Scaling groups and EKS managed node groups over time, on moto's objects."""
