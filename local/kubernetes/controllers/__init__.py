"""The controllers of kube-controller-manager that a cluster with changing nodes needs.

They work on the store directly, without HTTP. A loop outside this package steps them (see ``control_plane``).
"""
