"""What pods can be scheduled on: state nodes, nominations, launch options, offerings, NodePool limits."""
