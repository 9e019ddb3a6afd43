"""From a claim to an instance: subnets, security groups, images, user data, launch templates, CreateFleet."""
