"""The next step of a node's drain, by its pods and volumes as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.api.storage import PersistentVolumeClaim, VolumeAttachment
from shared.cluster import resources
from shared.cluster.listing import list_objects
from shared.termination.drain import drain_step

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.api.kubernetes import Pod
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.termination.drain import DrainStep


def drain_step_of(client: Client, claim: NodeClaim, pods: Iterable[Pod], *, now: datetime) -> DrainStep:
    """What to do now for the node with these pods; ``claim`` has its name, and its deadline if it has one."""
    attachments = [
        attachment
        for attachment in list_objects(client, resources.VOLUME_ATTACHMENTS, VolumeAttachment).objects
        if attachment.spec.node_name == claim.name
    ]
    volume_of: dict[str, str] = {}
    if attachments:
        claims = list_objects(client, resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim).objects
        volume_of = {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.volume_name for c in claims}
    return drain_step(claim, pods, attachments, volume_of, now=now)
