"""Decides on a virtual fleet next to another autoscaler, and keeps the ledger of both. Writes its record only."""
