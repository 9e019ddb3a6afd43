"""What a NodeClass selects on AWS: subnets, security groups, AMIs, instance profile, capacity reservations."""
