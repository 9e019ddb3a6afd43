"""CapacityBuffers in decisions.

``demand`` says how many chunks are wanted now, ``chunks`` makes the virtual pods that stand for them, and
``chunk_placement`` places these after the pods.
"""
