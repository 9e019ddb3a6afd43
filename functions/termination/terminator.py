"""One look at claims that are being deleted: nodes are tainted and emptied, instances terminated, and all let go.

Nothing is remembered between looks but what stands in the cluster, so a look can die anywhere and the next one goes on.
A pod leaves by the eviction API; a PodDisruptionBudget that says no is asked again later. Claims of one invocation end
together: one call to EC2 terminates all their instances.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING

from msgspec.structs import replace

from functions.termination import drain
from functions.termination.cluster_cache import Listings
from functions.termination.eviction import Emptying
from functions.termination.instance_termination import Ending
from functions.termination.requeue_sender import Looks
from shared import runtime
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node
from shared.api.meta import ObjectMeta, condition, is_true
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.pods import is_terminating
from shared.cluster import resources, writes
from shared.cluster.connect import connect
from shared.cluster.errors import NotFoundError
from shared.cluster.events import recorder
from shared.cluster.snapshot_reader import list_pods_on_node
from shared.launch.instances import describe, instance_id
from shared.launch.termination import terminate
from shared.termination import garbage, requeue
from shared.termination.requeue import WaitReason

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.termination.settings import TerminationSettings


class Drain:
    """The tools of one invocation, for any number of claims."""

    def __init__(self, settings: TerminationSettings, *, logger: Logger) -> None:
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._listings = Listings(self._client, settings.cluster_name)
        self._looks = Looks(self._client, settings)
        self._emptying = Emptying(client=self._client, recorder=self._recorder, logger=logger)
        self._ending = Ending(self._client, self._looks, logger=logger)
        self._freed: set[str] = set()

    def follow(self, claim_name: str) -> None:
        """Go on with a claim, if it is being deleted and its next look is due. One that isn't costs one request."""
        self._follow(claim_name, early=False)

    def follow_freed(self, claim_name: str) -> None:
        """Go on with a drain that has begun, due or not: what held it has changed. Once an invocation."""
        if claim_name not in self._freed:
            self._freed.add(claim_name)
            self._follow(claim_name, early=True)

    def _follow(self, claim_name: str, *, early: bool) -> None:
        now = runtime.current().now()
        try:
            claim = writes.read(self._client, resources.NODE_CLAIMS, claim_name, NodeClaim)
        except NotFoundError:
            return
        if claim.metadata.deletion_timestamp is None:
            return
        has_begun = condition(claim.status.conditions, nodeclaim.DRAINED) is not None
        if not (requeue.is_due(claim, now=now) or (early and has_begun)):
            return
        try:
            claim = writes.update(self._client, resources.NODE_CLAIMS, claim, _with_deadline)
        except NotFoundError:
            return
        self._go_on(claim, self._listings.node_of(claim))

    def follow_node(self, node_name: str) -> None:
        """A node is being deleted: its claim goes with it. One without a claim is emptied too, or let go."""
        try:
            node = writes.read(self._client, resources.NODES, node_name, Node)
        except NotFoundError:
            return
        claim = self._listings.claim_of(node)
        if claim is None:
            self._without_claim(node)
            return
        if node.metadata.deletion_timestamp is None:
            return
        if claim.metadata.deletion_timestamp is None:
            writes.delete(self._client, resources.NODE_CLAIMS, claim)
        self.follow(claim.name)

    def terminate_orphans(self, instance_ids: Iterable[str]) -> None:
        """Terminate instances that lifecycle found without a claim, after looking again: a hint may be late."""
        asked = set(instance_ids)
        seen = self._listings
        orphans = garbage.instances_without_nodeclaim(
            seen.readable_instances(), seen.claims(), seen.nodes(), now=runtime.current().now()
        )
        still = [i for i in orphans if i in asked]
        if still:
            self._logger.warning("Terminating instances without a NodeClaim", extra={"instances": still})
            terminate(still)

    def finish(self) -> None:
        """Terminate the instances of all that was emptied, in one call; let go what has none left; send next looks.

        Raises:
            ClientError: EC2 refused; nothing was let go, and each claim concerned is due as before.
        """
        try:
            self._ending.carry_out()
        finally:
            self._looks.send()

    def _go_on(self, claim: NodeClaim, node: Node | None) -> None:
        """Empty the node a step further; when nothing is left there, the claim is up for its end."""
        if node is None or self._is_dead(claim, node):
            self._ending.add(claim, node)
            return
        node = self._emptying.cordon(node)
        pods = list_pods_on_node(self._client, node.metadata.name).objects
        step = drain.next_step(
            claim, pods, self._listings.attachments(node), self._listings.volumes(node), now=runtime.current().now()
        )
        awaited = self._emptying.carry_out(claim, node, step)
        if step.terminate:
            self._ending.add(claim, node)
            return
        if any(is_terminating(p) for p in pods):
            awaited = WaitReason.PODS
        self._looks.again(claim, awaited, latest=step.latest)

    def _is_dead(self, claim: NodeClaim, node: Node) -> bool:
        """Whether the machine is gone under its node, so that no pod there can be moved or waited for."""
        if is_true(node.status.conditions, "Ready"):
            return False
        identity = instance_id(claim.status.provider_id)
        if identity and any(garbage.is_alive(i) for i in describe([identity])):
            return False
        message = f"instance {identity} is gone, so its pods there are gone too; node {node.metadata.name} is removed"
        self._recorder.record(node.ref, "Warning", "InstanceGone", message)
        return True

    def _without_claim(self, node: Node) -> None:
        """Remove a node whose instance is gone too; empty one whose instance lives. Other people's are not ours."""
        now, seen = runtime.current().now(), self._listings
        if garbage.nodes_without_nodeclaim_and_instance([node], seen.claims(), seen.instances(), now=now):
            message = "it has neither a NodeClaim nor an instance"
            self._recorder.record(node.ref, "Warning", "NodeAbandoned", message)
            self._logger.info("Removed a node", extra={"node": node.metadata.name, "why": message})
            self._ending.remove(node)
        elif garbage.nodes_without_nodeclaim([node], seen.claims(), seen.readable_instances(), now=now):
            self._recorder.record(
                node.ref, "Warning", "ClaimGone", "its NodeClaim is gone, so it is drained and removed"
            )
            if node.metadata.deletion_timestamp is None:
                node = writes.update(self._client, resources.NODES, node, _with_finalizer)
                writes.delete(self._client, resources.NODES, node)
            self._go_on(_stand_in(node, now=now), node)


def _with_deadline(claim: NodeClaim) -> NodeClaim:
    """The claim with the moment at which its terminationGracePeriod ends, for people and for Karpenter."""
    end = drain.deadline(claim)
    if end is None or names.TERMINATION_TIMESTAMP in claim.metadata.annotations:
        return claim
    stamp = {names.TERMINATION_TIMESTAMP: end.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
    return replace(claim, metadata=replace(claim.metadata, annotations={**claim.metadata.annotations, **stamp}))


def _with_finalizer(node: Node) -> Node:
    if names.TERMINATION_FINALIZER in node.metadata.finalizers:
        return node
    finalizers = [*node.metadata.finalizers, names.TERMINATION_FINALIZER]
    return replace(node, metadata=replace(node.metadata, finalizers=finalizers))


def _stand_in(node: Node, *, now: datetime) -> NodeClaim:
    """What the node's claim would be if it were still there. Nobody can write to it: the sweep brings the next look."""
    return NodeClaim(
        metadata=ObjectMeta(name=node.metadata.name, deletion_timestamp=node.metadata.deletion_timestamp or now),
        status=NodeClaimStatus(provider_id=node.spec.provider_id, node_name=node.metadata.name),
    )
