"""What the other rooms build on: AWS clients, settings, queues, stored rows, metrics; nothing here knows Kubernetes."""
