"""EC2 behind the cloud provider: NodeClasses resolved to AWS resources, launch templates, CreateFleet, instances."""
