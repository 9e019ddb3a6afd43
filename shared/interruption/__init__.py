"""What EC2 says about its machines: one parser a kind of event, and what each asks for."""
