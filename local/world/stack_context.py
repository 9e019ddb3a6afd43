"""The CDK's context of a world's stack. A wheel's assemblies are made with the same (distribution/assets.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.aws.account import ROLE
from local.world import webhook_calls

if TYPE_CHECKING:
    from collections.abc import Mapping


def stack_context(cluster: str, options: Mapping[str, str]) -> dict[str, str]:
    """The CDK's context of a world's stack: its own values, and those of the world's options."""
    return {
        "bundle": "source",
        "clusterSide": "printed",
        "nodeRoles": ROLE.format(cluster=cluster),
        # Every metric is written, so that tests see them.
        "observability": "full",
        "relay": "pod",
        **webhook_calls.with_digest(options),
    }
