"""Decides on a virtual fleet beside another autoscaler, and keeps the ledger of both. Writes nothing but its record."""
