"""The events that interrupt instances: one module per event type, with its source, detail-type and parser. Pure."""
