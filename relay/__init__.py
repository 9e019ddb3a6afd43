"""The relay: watches the cluster and puts hints on the event bus.

``relay.Relay`` is the core; ``main`` and ``health`` make it a process with probes.
"""
