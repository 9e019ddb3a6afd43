"""Scheduling rules of pods: node requirements, pod affinity, volume topology."""
