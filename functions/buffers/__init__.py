"""Reads the queues, alarms and events that CapacityBuffers follow, and writes what they ask for on the buffers."""
