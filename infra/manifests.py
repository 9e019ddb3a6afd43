NAMESPACE = "tenon"
RELAY = "tenon-relay"


def group(function: str) -> str:
    """The Kubernetes group that a function's role is known by in the cluster."""
    return f"tenon:{function}"
