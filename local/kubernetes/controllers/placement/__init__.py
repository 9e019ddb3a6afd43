"""What kube-scheduler checks before it binds a pod.

Written apart from ``shared.scheduling``, so that it can contradict it.
"""
