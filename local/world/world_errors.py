"""Errors at the end of a world in which something went wrong unnoticed."""

from __future__ import annotations


class DeniedRequestsError(RuntimeError):
    """A function or the relay sent requests that its role or its RBAC rules don't allow; the text lists them."""


class DroppedInvocationsError(RuntimeError):
    """Lambda's recursive loop detection dropped invocations; the text lists them."""
