"""Looks for subnets that are short of addresses, and remembers them for decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api.meta import EventReason
from shared.cluster.connect import describe
from shared.launch.node_class import free_addresses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from functions.lifecycle.context import ReconcileContext
    from shared.api.nodeclass import EC2NodeClass


def remember_short_subnets(context: ReconcileContext, node_classes: Mapping[str, EC2NodeClass]) -> None:
    """Remember the short subnets of the node classes, with an event on each class; a failure is only logged."""
    settings = context.settings
    subnets = {s.id: s for c in node_classes.values() for s in c.status.subnets}
    try:
        ipv6 = describe(context.aws.eks(), settings.cluster_name).is_ipv6
        needed = {c.name: free_addresses.node_addresses(c.spec, ipv6=ipv6) for c in node_classes.values()}
        most = max(needed.values(), default=0)
        short = free_addresses.short_subnets(context.aws.ec2(), subnets.values(), needed=most)
        if not short:
            return
        free_addresses.remember(context.aws.dynamodb(), settings.table_name, short, now=context.now)
    except (BotoCoreError, ClientError) as error:
        context.logger.warning("Free addresses of subnets are unknown", extra={"why": str(error)})
        return
    for node_class in node_classes.values():
        selected, least = {s.id for s in node_class.status.subnets}, needed[node_class.name]
        for subnet in short:
            if subnet.id in selected and subnet.free_addresses < least:
                message = f"{subnet}, and a node needs {least}: nodes are launched in other zones if there are any"
                context.recorder.record(node_class.ref, "Warning", EventReason("FewFreeAddresses"), message)
