"""Acts on EC2's and AWS Health's events: drains and replaces interrupted instances, and replaces others in advance."""
