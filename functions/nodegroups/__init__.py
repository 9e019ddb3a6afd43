"""Scales node groups down by Cluster Autoscaler's rules."""
