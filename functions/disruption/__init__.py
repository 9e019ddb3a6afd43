"""The disruption controller: removes nodes that are empty, expired, drifted, surplus or underutilized."""
