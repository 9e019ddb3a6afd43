"""A Kubernetes control plane for tests: API server, scheduler and controllers in one process. See README.md.

The official Python client and ``kubectl`` work with it, so Tenon's functions run unchanged on one machine.
"""
