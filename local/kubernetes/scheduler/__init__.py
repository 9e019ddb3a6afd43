"""A kube-scheduler: filters and scores nodes for pending pods, and binds pods to nodes.

It is written independently of ``shared.scheduling`` so that tests can compare the two.
"""
