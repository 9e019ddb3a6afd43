"""What EC2 says about its machines: one module a kind of event, and what follows from each. Pure."""
