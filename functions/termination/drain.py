"""One look at claims that are being deleted: nodes are tainted and emptied, instances terminated, and all let go.

Nothing is remembered between looks but what stands in the cluster, so a look can die anywhere and the next one goes on.
A pod leaves by the eviction API; a PodDisruptionBudget that says no is asked again later. Claims of one invocation end
together: one call to EC2 terminates all their instances.
"""

from __future__ import annotations

import contextlib
from datetime import UTC
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from shared import aws, hints, host, queues
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.kubernetes import Node, PersistentVolumeClaim, VolumeAttachment
from shared.api.meta import ObjectMeta, condition, is_true, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
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
    from collections.abc import Callable, Iterable
    from datetime import datetime, timedelta

    from aws_lambda_powertools import Logger

    from functions.termination.settings import TerminationSettings
    from shared.cluster.listing import Listed
    from shared.launch.instances import Instance
    from shared.lifecycle.draining import Step

T = TypeVar("T")

_GONE = "terminated"
_LEAVING = frozenset({"shutting-down", _GONE})
_ALIVE = frozenset({"pending", "running", "stopping", "stopped"})


class Drain:
    """The tools of one invocation, for any number of claims; what it lists, it lists once."""

    def __init__(self, settings: TerminationSettings, *, logger: Logger) -> None:
        self._settings = settings
        self._logger = logger
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._later: dict[timedelta, list[str]] = {}
        self._ending: dict[str, tuple[NodeClaim, Node | None]] = {}
        self._kept: dict[str, Any] = {}

    def follow(self, claim_name: str) -> None:
        """Go on with a claim, if it is being deleted and its next look is due. One that isn't costs one request."""
        now = host.current().now()
        try:
            claim = writes.read(self._client, resources.NODE_CLAIMS, claim_name, NodeClaim)
        except NotFoundError:
            return
        if claim.metadata.deletion_timestamp is None or not continuing.is_due(claim, now=now):
            return
        try:
            claim = writes.update(self._client, resources.NODE_CLAIMS, claim, _with_deadline)
        except NotFoundError:
            return
        self._go_on(claim, self._node(claim))

    def follow_node(self, node_name: str) -> None:
        """A node is being deleted: its claim goes with it. One without a claim is emptied too, or let go."""
        try:
            node = writes.read(self._client, resources.NODES, node_name, Node)
        except NotFoundError:
            return
        claim = next(
            (c for c in self._claims() if c.status.provider_id and c.status.provider_id == node.spec.provider_id), None
        )
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
        orphans = garbage.orphans(self._loose(), self._claims(), self._nodes(), now=host.current().now())
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
            self._end()
        finally:
            self._send_continuations()

    # --- one claim ---

    def _go_on(self, claim: NodeClaim, node: Node | None) -> None:
        """Empty the node a step further; when nothing is left there, the claim is up for its end."""
        if node is None or self._is_dead(claim, node):
            self._ending[claim.name] = (claim, node)
            return
        node = self._cordon(node)
        pods = pods_on(self._client, node.metadata.name).objects
        step = draining.next_step(claim, pods, self._attachments(node), self._volumes(node), now=host.current().now())
        moved, refused = self._carry_out(step, node)
        self._say(claim, node, step, refused)
        if step.terminate:
            self._ending[claim.name] = (claim, node)
            return
        moving = moved or any(p.metadata.deletion_timestamp is not None for p in pods)
        self._look_again(claim, Awaited.PODS if moving else Awaited.NOBODY, step.latest)

    def _is_dead(self, claim: NodeClaim, node: Node) -> bool:
        """Whether the machine is gone under its node, so that no pod there can be moved or waited for."""
        if is_true(node.status.conditions, "Ready"):
            return False
        identity = instance_id(claim.status.provider_id)
        if identity and any(i.state in _ALIVE for i in describe([identity])):
            return False
        message = f"instance {identity} is gone, so its pods there are gone too; node {node.metadata.name} is removed"
        self._recorder.record(node.ref, "Warning", "InstanceGone", message)
        return True

    def _node(self, claim: NodeClaim) -> Node | None:
        """The claim's node as it is now."""
        if not claim.status.provider_id:
            return None
        if claim.status.node_name:
            with contextlib.suppress(NotFoundError):
                node = writes.read(self._client, resources.NODES, claim.status.node_name, Node)
                if node.spec.provider_id == claim.status.provider_id:
                    return node
        return next((n for n in self._nodes() if n.spec.provider_id == claim.status.provider_id), None)

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

    def _carry_out(self, step: Step, node: Node) -> tuple[bool, list[str]]:
        """Evict and delete. Whether any pod went on its way, and who was refused, with the reason."""
        moved = False
        refused: list[str] = []
        for pod in step.evict:
            try:
                self._client.evict(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)
            except TooManyRequestsError as error:
                refused.append(f"pod {pod.key} can't leave now: {error.message}")
                continue
            except (NotFoundError, ConflictError):
                moved = True
                continue
            moved = True
            self._recorder.record(pod.ref, "Normal", "Evicted", f"node {node.metadata.name} is being removed")
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
        return moved, refused

    def _say(self, claim: NodeClaim, node: Node, step: Step, refused: list[str]) -> None:
        """Keep the claim's Drained and VolumesDetached conditions, which tell people what is waited for.

        What holds is told by an event once, when it begins to: the condition remembers that it was.
        """
        now = host.current().now()
        message = "" if step.drained or step.terminate else step.waiting_for
        if refused:
            more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
            message = f"{message}; {refused[0]}{more}"
            before = condition(claim.status.conditions, nodeclaim.DRAINED)
            if before is None or before.message != message:
                self._recorder.record(node.ref, "Warning", "FailedDraining", f"{refused[0]}{more}")
                self._logger.info("Pods can't be evicted now", extra={"nodeclaim": claim.name, "why": refused})

        def change(current: NodeClaim) -> NodeClaim:
            conditions = with_condition(
                current.status.conditions,
                nodeclaim.DRAINED,
                status=step.drained or step.terminate,
                reason="Drained" if step.drained or step.terminate else "Draining",
                message=message,
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

    # --- the end ---

    def _end(self) -> None:
        """Terminate what still lives; what EC2 says is gone has its node and claim let go, finalizers last."""
        ids = {name: instance_id(claim.status.provider_id) for name, (claim, _) in self._ending.items()}
        wanted = sorted({i for i in ids.values() if i})
        known = {i.id: i.state for i in describe(wanted)} if wanted else {}
        living = [i for i, state in known.items() if state not in _LEAVING]
        if living:
            terminate(living)
            self._logger.info("Terminated instances", extra={"instances": living, "nodeclaims": sorted(ids)})
        for name, (claim, node) in self._ending.items():
            if known.get(ids[name], _GONE) == _GONE:
                self._let_go(claim, node)
                continue
            if ids[name] in living:
                self._note_terminating(claim)
            self._look_again(claim, Awaited.INSTANCE, None)
        self._ending.clear()

    def _let_go(self, claim: NodeClaim, node: Node | None) -> None:
        if node is not None:
            writes.delete(self._client, resources.NODES, node)
            writes.remove_finalizer(self._client, resources.NODES, node, names.TERMINATION_FINALIZER)
        writes.remove_finalizer(self._client, resources.NODE_CLAIMS, claim, names.TERMINATION_FINALIZER)

    def _note_terminating(self, claim: NodeClaim) -> None:
        now = host.current().now()

        def change(current: NodeClaim) -> NodeClaim:
            conditions = with_condition(
                current.status.conditions,
                nodeclaim.INSTANCE_TERMINATING,
                status=True,
                reason="InstanceTerminating",
                now=now,
            )
            return replace(current, status=replace(current.status, conditions=conditions))

        with contextlib.suppress(NotFoundError):
            writes.update_status(self._client, resources.NODE_CLAIMS, claim, change)

    # --- a node whose claim is gone ---

    def _without_claim(self, node: Node) -> None:
        """Remove a node whose instance is gone too; empty one whose instance lives. Other people's are not ours."""
        now = host.current().now()
        if garbage.abandoned([node], self._claims(), self._instances(), now=now):
            message = "it has neither a NodeClaim nor an instance"
            self._recorder.record(node.ref, "Warning", "NodeAbandoned", message)
            self._logger.info("Removed a node", extra={"node": node.metadata.name, "why": message})
            writes.delete(self._client, resources.NODES, node)
            writes.remove_finalizer(self._client, resources.NODES, node, names.TERMINATION_FINALIZER)
        elif garbage.unclaimed([node], self._claims(), self._loose(), now=now):
            self._recorder.record(
                node.ref, "Warning", "ClaimGone", "its NodeClaim is gone, so it is drained and removed"
            )
            if node.metadata.deletion_timestamp is None:
                node = writes.update(self._client, resources.NODES, node, _with_finalizer)
                writes.delete(self._client, resources.NODES, node)
            self._go_on(_stand_in(node, now=now), node)

    # --- when to look again ---

    def _look_again(self, claim: NodeClaim, awaited: Awaited, latest: datetime | None) -> None:
        now = host.current().now()
        wait = continuing.delay(claim, awaited, latest=latest, now=now)
        if self._reserve(claim, now + wait):
            self._later.setdefault(wait, []).append(claim.name)

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

    def _send_continuations(self) -> None:
        """Send the next looks of everything that was followed, those due together in one message."""
        now = host.current().now()
        for wait, claims in self._later.items():
            for body in hints.bodies(hints.DRAIN, cluster=self._settings.cluster_name, keys=claims, time=now):
                queues.send_later(aws.sqs(), self._settings.termination_queue_url, body=body, delay=wait)
        self._later.clear()

    # --- what is listed, once an invocation ---

    def _once(self, what: str, make: Callable[[], T]) -> T:
        if what not in self._kept:
            self._kept[what] = make()
        kept: T = self._kept[what]
        return kept

    def _nodes(self) -> tuple[Node, ...]:
        return self._once("nodes", lambda: objects(self._client, resources.NODES, Node).objects)

    def _listed_claims(self) -> Listed[NodeClaim]:
        return self._once("claims", lambda: objects(self._client, resources.NODE_CLAIMS, NodeClaim))

    def _claims(self) -> tuple[NodeClaim, ...]:
        return self._listed_claims().objects

    def _instances(self) -> tuple[Instance, ...]:
        return self._once("instances", lambda: describe_cluster_instances(self._settings.cluster_name))

    def _loose(self) -> tuple[Instance, ...]:
        """The instances whose claim could be read, if they have one."""
        return garbage.readable(self._instances(), {bad.ref.name for bad in self._listed_claims().invalid})

    def _attachments(self, node: Node) -> tuple[VolumeAttachment, ...]:
        found = self._once(
            "attachments", lambda: objects(self._client, resources.VOLUME_ATTACHMENTS, VolumeAttachment).objects
        )
        return tuple(a for a in found if a.spec.node_name == node.metadata.name)

    def _volumes(self, node: Node) -> dict[str, str]:
        """The volumes of volume claims, where anything is attached to the node at all."""
        if not self._attachments(node):
            return {}
        found = self._once(
            "volumes",
            lambda: objects(self._client, resources.PERSISTENT_VOLUME_CLAIMS, PersistentVolumeClaim).objects,
        )
        return {f"{c.metadata.namespace}/{c.metadata.name}": c.spec.volume_name for c in found}


def _with_deadline(claim: NodeClaim) -> NodeClaim:
    """The claim with the moment at which its terminationGracePeriod ends, for people and for Karpenter."""
    end = draining.deadline(claim)
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
