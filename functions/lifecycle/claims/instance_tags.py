"""Tags instances with their NodeClaim and its name, once it is recorded on the NodeClaim.

The instances of a launch for several NodeClaims have the tags that these share only. Each needs a call of its own, and
EC2 allows ten a second, so a launch doesn't wait for them: a sweep tags as many as EC2's bucket holds ("Request
throttling for the Amazon EC2 API": CreateTags, 100 and 10 a second). What fails is tried again in the next sweep.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api import labels as names
from shared.base.runtime import in_threads
from shared.cloud_provider import instance_id
from shared.launch.instances import PENDING_OR_RUNNING

if TYPE_CHECKING:
    from functions.lifecycle.context import ReconcileContext
    from shared.cloud_provider import Instance
    from shared.snapshot import Snapshot

MAX_TAGGED_A_SWEEP = 100


def tag(context: ReconcileContext, snapshot: Snapshot, instances: tuple[Instance, ...]) -> None:
    """Tag instances of launches that have no tag of their NodeClaim."""
    claims = {
        instance_id(c.status.provider_id): c.name for c in snapshot.node_claims if c.metadata.deletion_timestamp is None
    }
    untagged = [
        (instance, claims[instance.id])
        for instance in instances
        if instance.id in claims
        and instance.state in PENDING_OR_RUNNING
        and names.LAUNCH_GROUP in instance.tags
        and names.NODECLAIM_TAG not in instance.tags
    ]
    first, rest = untagged[:1], untagged[1:MAX_TAGGED_A_SWEEP]
    if all(_tag(context, *pair) for pair in first):  # where a policy denies it, one call a sweep is enough
        in_threads(lambda pair: _tag(context, *pair), rest, sequential_limit=1)


def _tag(context: ReconcileContext, instance: Instance, claim_name: str) -> bool:
    tags = {names.NODECLAIM_TAG: claim_name, "Name": instance.tags.get("Name", claim_name)}
    try:
        context.aws.ec2().create_tags(
            Resources=[instance.id], Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
        )
    except (BotoCoreError, ClientError) as error:
        context.logger.warning("Couldn't tag an instance", extra={"instance": instance.id, "why": str(error)})
        return False
    return True
