"""The AWS of a cluster that `tenon demo --keep` runs on this machine, which its kubeconfig names.

With such a kubeconfig, commands need neither credentials nor flags, and call nothing but this machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTENSION = "tenon.sh/local-aws"
_LOOPBACK = "http://127.0.0.1:"
_CREDENTIALS = "local"  # the local AWS checks no signature
_OF_AN_ACCOUNT = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")


def extension(endpoint: str) -> dict[str, Any]:
    """What a context's ``extensions`` say of the AWS at that endpoint."""
    return {"name": EXTENSION, "extension": {"endpoint": endpoint}}


def use(context: Mapping[str, Any]) -> None:
    """Let this process call the AWS that the kubeconfig's context names, if it names one, without credentials.

    Raises:
        UsageError: the context names one that isn't on this machine.
    """
    extensions = context.get("context", {}).get("extensions") or ()
    endpoint = next((str(e["extension"].get("endpoint")) for e in extensions if e.get("name") == EXTENSION), None)
    if endpoint is None:
        return
    if not endpoint.startswith(_LOOPBACK):
        raise UsageError(f"the kubeconfig's {EXTENSION} is {endpoint}, which isn't on this machine")
    for name in _OF_AN_ACCOUNT:
        os.environ.pop(name, None)
    os.environ |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": _CREDENTIALS,
        "AWS_SECRET_ACCESS_KEY": _CREDENTIALS,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
