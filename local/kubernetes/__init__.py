"""An embedded Kubernetes API: a store with an apiserver's semantics, and an HTTPS server that clients can't tell apart.

The real ``kubernetes`` client and ``kubectl`` talk to it, so the functions run unchanged on one machine.
"""
