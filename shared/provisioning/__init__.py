"""Provisioning: pending pods become NodeClaims, and NodeClaims become instances."""
