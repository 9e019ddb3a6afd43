"""One look at a claim that is being deleted: its node is tainted and emptied, its instance terminated, and it let go.

Nothing is remembered between looks but what stands in the cluster, so a look can die anywhere and the next one goes on.
A pod leaves by the eviction API; a PodDisruptionBudget that says no is asked again later.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import aws, hints, host, queues
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, PersistentVolumeClaim, Pod, VolumeAttachment
from shared.api.meta import with_condition
from shared.api.nodeclaim import NodeClaim
from shared.cluster import resources, writes
from shared.cluster.connect import connect
from shared.cluster.errors import ConflictError, InvalidError, NotFoundError, TooManyRequestsError
from shared.cluster.events import recorder
from shared.cluster.listing import objects
from shared.cluster.reading import pods_on
from shared.launch.instances import describe, describe_cluster_instances, instance_id
from shared.launch.termination import terminate
from shared.lifecycle import continuing, draining, garbage
from shared.lifecycle.continuing import Awaited

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime, timedelta

    from aws_lambda_powertools import Logger

    from functions.termination.settings import TerminationSettings
    from shared.lifecycle.draining import Step


@dataclass(kw_only=True)
class Outcome:
    """What one look came to: ``gone`` when the claim is finished, else what is waited for."""

    gone: bool = False
    waits_for: Awaited = Awaited.NOBODY


class Drain:
    """The tools of one invocation, for any number of claims."""

    def __init__(self, settings: TerminationSettings, *, logger: Logger) -> None:
        self._settings = settings
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._later: dict[timedelta, list[str]] = {}

    def follow(self, claim_name: str) -> None:
        """Go on with a claim, if it is being deleted and its next look is due; see to it that another look follows."""
        now = host.current().now()
        try:
            claim = writes.read(self._client, resources.NODE_CLAIMS, claim_name, NodeClaim)
        except NotFoundError:
            return
        if claim.metadata.deletion_timestamp is None or not continuing.is_due(claim, now=now):
            return
        outcome = self._look(claim)
        if outcome.gone:
            return
        now = host.current().now()
        wait = continuing.delay(claim, outcome.waits_for, end=draining.deadline(claim), now=now)
        if self._reserve(claim, now + wait):
            self._later.setdefault(wait, []).append(claim.name)

    def send_continuations(self) -> None:
        """Send the next looks of everything that was followed, those due together in one message."""
        now = host.current().now()
        for wait, claims in self._later.items():
            for body in hints.bodies(hints.DRAIN, cluster=self._settings.cluster_name, keys=claims, time=now):
                queues.send_later(aws.sqs(), self._settings.termination_queue_url, body=body, delay=wait)
        self._later.clear()

    def follow_node(self, node_name: str) -> None:
        """A node is being deleted: its claim goes with it; one without a claim is let go once its instance is gone."""
        try:
            node = writes.read(self._client, resources.NODES, node_name, Node)
        except NotFoundError:
            return
        claims = objects(self._client, resources.NODE_CLAIMS, NodeClaim).objects
        claim = next(
            (c for c in claims if c.status.provider_id and c.status.provider_id == node.spec.provider_id), None
        )
        if claim is None:
            self._let_go(node)
            return
        if node.metadata.deletion_timestamp is None:
            return
        writes.delete(self._client, resources.NODE_CLAIMS, claim)
        self.follow(claim.name)

    def terminate_orphans(self, instance_ids: Iterable[str]) -> None:
        """Terminate instances that lifecycle found without a claim, after looking again: a hint may be late."""
        asked = set(instance_ids)
        instances = describe_cluster_instances(self._settings.cluster_name)
        claims = objects(self._client, resources.NODE_CLAIMS, NodeClaim).objects
        orphans = garbage.orphans(instances, claims, now=host.current().now())
        still = [i for i in orphans if i in asked]
        if still:
            self._logger.warning("Terminating instances without a NodeClaim", extra={"instances": still})
            terminate(still)

    def _look(self, claim: NodeClaim) -> Outcome:
        node = self._node(claim)
        if node is None:
            return self._terminate(claim, None)
        node = self._cordon(node)
        pods = pods_on(self._client, node.metadata.name).objects
        step = draining.next_step(claim, pods, self._attachments(node), self._volumes(), now=host.current().now())
        moved = self._carry_out(step, node)
        self._say(claim, step)
        if step.terminate:
            return self._terminate(claim, node)
        moving = moved or any(p.metadata.deletion_timestamp is not None for p in pods)
        return Outcome(waits_for=Awaited.PODS if moving else Awaited.NOBODY)

    def _node(self, claim: NodeClaim) -> Node | None:
        if not claim.status.provider_id:
            return None
        found = objects(self._client, resources.NODES, Node).objects
        return next((n for n in found if n.spec.provider_id == claim.status.provider_id), None)

    def _attachments(self, node: Node) -> tuple[VolumeAttachment, ...]:
        found = objects(self._client, resources.VOLUME_ATTACHMENTS, VolumeAttachment).objects
        return tuple(a for a in found if a.spec.node_name == node.metadata.name)

    def _volumes(self) -> dict[str, str]:
        found = objects(self._client, resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim).objects
        return {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.volume_name for c in found}

    def _cordon(self, node: Node) -> Node:
        """No new pods come, and load balancers outside send no more."""
        return writes.update(
            self._client,
            resources.NODES,
            node,
            lambda n: replace(
                n,
                metadata=replace(n.metadata, labels={**n.metadata.labels, names.EXCLUDE_BALANCERS: "karpenter"}),
                spec=replace(n.spec, taints=draining.with_disrupted(n.spec.taints)),
            ),
        )

    def _carry_out(self, step: Step, node: Node) -> bool:
        """Evict and delete; True if any pod went on its way."""
        moved = False
        for pod in step.evict:
            moved |= self._evict(pod, node)
        for pod, grace in step.force:
            try:
                self._client.delete(
                    resources.PODS.path(pod.metadata.name, namespace=pod.metadata.namespace),
                    uid=pod.metadata.uid,
                    grace_period_seconds=grace,
                )
            except (NotFoundError, ConflictError):
                continue
            moved = True
            self._recorder.record(
                pod.ref, "Warning", "Evicted", f"node {node.metadata.name} must go by its terminationGracePeriod"
            )
        return moved

    def _evict(self, pod: Pod, node: Node) -> bool:
        try:
            self._client.evict(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)
        except TooManyRequestsError as error:
            message = f"pod {pod.key} can't leave node {node.metadata.name} now: {error.message}"
            self._recorder.record(node.ref, "Warning", "FailedDraining", message)
            self._logger.info("A pod can't be evicted now", extra={"pod": pod.key, "why": error.message})
            return False
        except (NotFoundError, ConflictError):
            return True
        self._recorder.record(pod.ref, "Normal", "Evicted", f"node {node.metadata.name} is being removed")
        return True

    def _say(self, claim: NodeClaim, step: Step) -> None:
        """Keep the claim's Drained and VolumesDetached conditions, which tell people what is waited for."""
        now = host.current().now()

        def change(current: NodeClaim) -> NodeClaim:
            conditions = with_condition(
                current.status.conditions,
                nodeclaim.DRAINED,
                status=step.drained or step.terminate,
                reason="Drained" if step.drained or step.terminate else "Draining",
                message="" if step.drained else step.waiting_for,
                now=now,
            )
            if step.drained:
                conditions = with_condition(
                    conditions,
                    nodeclaim.VOLUMES_DETACHED,
                    status=step.terminate,
                    reason="VolumesDetached" if step.terminate else "AwaitingVolumeDetachment",
                    message="" if step.terminate else step.waiting_for,
                    now=now,
                )
            return replace(current, status=replace(current.status, conditions=conditions))

        with contextlib.suppress(NotFoundError):
            writes.update_status(self._client, resources.NODE_CLAIMS, claim, change)

    def _terminate(self, claim: NodeClaim, node: Node | None) -> Outcome:
        """Terminate the instance; once EC2 says that it is gone, let node and claim go."""
        known = describe([instance_id(claim.status.provider_id)]) if claim.status.provider_id else ()
        if any(i.state != "terminated" for i in known):
            if any(i.state != "shutting-down" for i in known):
                terminate([i.id for i in known])
                self._logger.info(
                    "Terminated an instance", extra={"nodeclaim": claim.name, "instances": [i.id for i in known]}
                )
                self._note(claim, nodeclaim.INSTANCE_TERMINATING, reason="InstanceTerminating")
            return Outcome(waits_for=Awaited.INSTANCE)
        if node is not None:
            writes.delete(self._client, resources.NODES, node)
            writes.remove_finalizer(self._client, resources.NODES, node, names.TERMINATION_FINALIZER)
        writes.remove_finalizer(self._client, resources.NODE_CLAIMS, claim, names.TERMINATION_FINALIZER)
        return Outcome(gone=True)

    def _note(self, claim: NodeClaim, type_: str, *, reason: str) -> None:
        """Set a condition to true, if the claim is still there."""
        now = host.current().now()
        with contextlib.suppress(NotFoundError):
            writes.update_status(
                self._client,
                resources.NODE_CLAIMS,
                claim,
                lambda c: replace(
                    c,
                    status=replace(
                        c.status,
                        conditions=with_condition(c.status.conditions, type_, status=True, reason=reason, now=now),
                    ),
                ),
            )

    def _let_go(self, node: Node) -> None:
        """Remove a node that has no claim, if its instance is gone too; other people's nodes are not ours to touch."""
        if names.TERMINATION_FINALIZER not in node.metadata.finalizers:
            return
        instances = describe_cluster_instances(self._settings.cluster_name)
        claims = objects(self._client, resources.NODE_CLAIMS, NodeClaim).objects
        if node.metadata.name in {n.metadata.name for n in garbage.abandoned([node], claims, instances)}:
            writes.delete(self._client, resources.NODES, node)
            writes.remove_finalizer(self._client, resources.NODES, node, names.TERMINATION_FINALIZER)
            self._logger.info("Removed a node without NodeClaim or instance", extra={"node": node.metadata.name})

    def _reserve(self, claim: NodeClaim, moment: datetime) -> bool:
        """Put the next look's time on the claim; False when another look has, since this one read it."""
        path = resources.NODE_CLAIMS.path(claim.name)
        before = claim.metadata.annotations.get(continuing.NEXT_LOOK)
        place = "/metadata/annotations/" + continuing.NEXT_LOOK.replace("/", "~1")
        try:
            if before is None:
                self._client.patch(path, {"metadata": {"annotations": {continuing.NEXT_LOOK: moment.isoformat()}}})
            else:
                test = {"op": "test", "path": place, "value": before}
                self._client.patch(
                    path, [test, {"op": "replace", "path": place, "value": moment.isoformat()}], kind="json"
                )
        except (NotFoundError, ConflictError, InvalidError):
            return False
        return True
