"""The disruption controller: removes nodes that are unhealthy, empty, expired, drifted, surplus or underutilized."""
