"""The Kubernetes API: token, client, lists and watches, snapshot, lease, writes, events."""
