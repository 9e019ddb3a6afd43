"""One look at everything that lives: claims come to their nodes, statuses say what is, what is left behind is found.

Each object is dealt with on its own: what goes wrong with one is logged with its name, and the others go on. Nothing
here terminates anything: claims are deleted, and what must be drained or terminated is told to the termination
function.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, cast

from botocore.exceptions import ClientError
from msgspec.structs import replace

from functions.lifecycle.leftovers import clear
from shared import aws, hints, host
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import Condition, ObjectMeta, Struct, is_true
from shared.cluster import resources, writes
from shared.cluster.connect import connect, describe
from shared.cluster.errors import ApiError, NotFoundError
from shared.cluster.events import recorder
from shared.cluster.reading import read
from shared.launch.instances import describe_cluster_instances, instance_id, of_launch_groups
from shared.launch.supply import resolved
from shared.lifecycle import continuing, garbage, liveness, pools, registration, repair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aws_lambda_powertools import Logger

    from functions.lifecycle.settings import LifecycleSettings
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.cluster.resources import Resource
    from shared.cluster.writes import O
    from shared.launch.instances import Instance
    from shared.lifecycle.liveness import GivenUp
    from shared.snapshot import Invalid, Snapshot


@dataclass(kw_only=True)
class Report:
    """What a sweep changed, for its log line and metrics."""

    registered: int = 0
    initialized: int = 0
    given_up: int = 0
    lost: int = 0
    orphans: int = 0
    repaired: int = 0
    failures: int = 0


class _Conditioned(Struct):
    conditions: list[Condition] = []


class _Anything(Struct):
    """Any object, seen only as far as its conditions: for objects that are too broken to be read."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Conditioned = _Conditioned()


class Sweep:
    """One run: the tools it works with, and its steps."""

    def __init__(self, settings: LifecycleSettings, *, logger: Logger) -> None:
        self._settings = settings
        self._logger = logger
        self._now = host.current().now()
        self._client = connect(settings)
        self._recorder = recorder(self._client)
        self._failed: dict[str, GivenUp] = {}
        self.report = Report()

    def look(self, *, everywhere: bool, classes: bool) -> Report:
        """Bring everything forward.

        ``classes``: also see what AWS makes of the node classes now; ``everywhere``: also compare with EC2 and clear
        up. Both cost calls, and a node that joins waits for neither.
        """
        snapshot = read(self._client, now=self._now)
        nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
        undealt = self._undealt(snapshot)
        for claim in snapshot.node_claims:
            self._each(claim.ref, partial(self._advance, claim, nodes, undealt))
        self._statuses(snapshot, classes=classes)
        if classes:
            self._adopt(snapshot)
        if everywhere:
            self._collect(snapshot)
        return self.report

    def _undealt(self, snapshot: Snapshot) -> Mapping[str, str]:
        """By launch group of claims that are late: a living instance that was launched for it and that nobody has."""
        late = {
            group
            for c in snapshot.node_claims
            if liveness.is_late(c, now=self._now) and (group := c.metadata.annotations.get(names.LAUNCH_GROUP))
        }
        if not late:
            return {}
        held = {instance_id(c.status.provider_id) for c in snapshot.node_claims}
        found = of_launch_groups(self._settings.cluster_name, sorted(late))
        return {i.tags[names.LAUNCH_GROUP]: i.id for i in found if i.id not in held}

    def _advance(self, claim: NodeClaim, nodes: Mapping[str, Node], undealt: Mapping[str, str]) -> None:
        if claim.metadata.deletion_timestamp is not None:
            return
        node = nodes.get(claim.status.provider_id) if claim.status.provider_id else None
        if node is not None:
            self._join(claim, node)
            return
        group = claim.metadata.annotations.get(names.LAUNCH_GROUP, "")
        given_up = liveness.given_up(claim, now=self._now, undealt=undealt.get(group, ""))
        if given_up is not None:
            self._failed[claim.metadata.labels.get(names.NODEPOOL, "")] = given_up
            self._give_up(claim, given_up.reason, given_up.message)
            self.report.given_up += 1

    def _give_up(self, claim: NodeClaim, reason: str, message: str) -> None:
        self._recorder.record(claim.ref, "Warning", reason, message)
        self._logger.warning("Gave up a NodeClaim", extra={"nodeclaim": claim.name, "reason": reason, "why": message})
        writes.delete(self._client, resources.NODE_CLAIMS, claim)

    def _join(self, claim: NodeClaim, node: Node) -> None:
        node = writes.update(self._client, resources.NODES, node, lambda n: registration.node_after(n, claim))
        after = writes.update_status(
            self._client,
            resources.NODE_CLAIMS,
            claim,
            lambda c: registration.claim_after(c, node, now=self._now),
        )
        for type_ in (nodeclaim.REGISTERED, nodeclaim.INITIALIZED):
            if is_true(after.status.conditions, type_) and not is_true(claim.status.conditions, type_):
                self._logger.info(
                    "A NodeClaim got further",
                    extra={"nodeclaim": claim.name, "node": node.metadata.name, "now": type_},
                )
                self._recorder.record(claim.ref, "Normal", type_, f"node {node.metadata.name}")
                if type_ == nodeclaim.REGISTERED:
                    self.report.registered += 1
                else:
                    self.report.initialized += 1

    def _statuses(self, snapshot: Snapshot, *, classes: bool) -> None:
        """Conditions of what can't be used, of the classes as AWS has them now, and of the pools."""
        for broken in snapshot.invalid:
            self._each(broken.ref, partial(self._tell_invalid, broken))
        live: Mapping[str, EC2NodeClass] = {c.name: c for c in snapshot.node_classes}
        if classes:
            live = resolved(
                snapshot.node_classes,
                describe(aws.eks(), self._settings.cluster_name),
                default_instance_profile=self._settings.node_instance_profile,
                now=self._now,
            )
            for node_class in snapshot.node_classes:
                self._each(node_class.ref, partial(self._write_class, node_class, live[node_class.name]))
        for pool in snapshot.node_pools:
            self._each(pool.ref, partial(self._write_pool, pool, snapshot, live))

    def _adopt(self, snapshot: Snapshot) -> None:
        """Take over what Karpenter, or an older version, made: our finalizer, and fingerprints of our version."""
        pools_ = {p.name: p for p in snapshot.node_pools}
        classes = {c.name: c for c in snapshot.node_classes}
        for claim in snapshot.node_claims:
            pool_ = pools_.get(claim.metadata.labels.get(names.NODEPOOL, ""))
            class_ = classes.get(claim.spec.node_class_ref.name)
            adopt = partial(registration.adopted, pool=pool_, node_class=class_)
            self._each(claim.ref, partial(self._update, resources.NODE_CLAIMS, claim, adopt))

    def _update(self, resource: Resource, obj: O, change: Callable[[O], O]) -> None:
        with contextlib.suppress(NotFoundError):
            writes.update(self._client, resource, obj, change)

    def _write_class(self, node_class: EC2NodeClass, live: EC2NodeClass) -> None:
        after = writes.update_status(
            self._client,
            resources.of(node_class.api_version, node_class.kind),
            node_class,
            lambda c: replace(c, status=live.status),
        )
        failing = [c for c in after.status.conditions if c.status == "False" and c.type != pools.READY]
        for condition in failing:
            self._recorder.record(node_class.ref, "Warning", condition.reason, condition.message)

    def _write_pool(self, pool: NodePool, snapshot: Snapshot, live: Mapping[str, EC2NodeClass]) -> None:
        node_class = pools.class_of(pool, live.values())
        writes.update_status(
            self._client,
            resources.of(pool.api_version, pool.kind),
            pool,
            lambda p: replace(
                p,
                status=pools.status(
                    p,
                    snapshot.node_claims,
                    snapshot.nodes,
                    node_class,
                    now=self._now,
                    failed=self._failed.get(pool.name),
                ),
            ),
        )
        obstacle = pools.class_not_ready(pool, node_class)
        if obstacle is not None:
            self._recorder.record(pool.ref, "Warning", *obstacle)

    def _tell_invalid(self, broken: Invalid) -> None:
        """Say what is wrong: by an event, and on our own kinds by conditions too."""
        message = "; ".join(broken.problems)
        self._recorder.record(broken.ref, "Warning", "Invalid", message)
        self._logger.warning("An object can't be used", extra={"object": str(broken.ref), "why": message})
        resource = resources.of(broken.ref.api_version, broken.ref.kind)
        if resource.group not in {names.GROUP, names.AWS_GROUP}:
            return
        writes.update_status(
            self._client,
            resource,
            writes.read(self._client, resource, broken.ref.name, _Anything),
            lambda o: replace(
                o,
                status=_Conditioned(
                    conditions=pools.invalid_conditions(
                        o.status.conditions, broken.problems, generation=o.metadata.generation, now=self._now
                    )
                ),
            ),
        )

    def _collect(self, snapshot: Snapshot) -> None:
        """Compare with EC2, each with what the other doesn't know of; what must be drained or ended is told on."""
        instances = describe_cluster_instances(self._settings.cluster_name)
        claims, nodes = snapshot.node_claims, snapshot.nodes
        unread = {i.ref.name for i in snapshot.invalid if i.ref.kind in {"Node", nodeclaim.KIND}}
        loose = garbage.readable(instances, unread)
        restored = set()
        for claim, instance in garbage.misnamed(claims, instances):
            restored.add(claim.name)
            self._each(claim.ref, partial(self._restore, claim, instance))
        gone = {c.name: c for c in garbage.lost(claims, instances, now=self._now) if c.name not in restored}
        for claim in gone.values():
            self._each(claim.ref, partial(self._give_up_lost, claim))
        for claim in garbage.bereft(claims, nodes):
            if not {claim.name, claim.status.node_name} & (gone.keys() | restored | unread):
                self._each(claim.ref, partial(self._give_up_bereft, claim))
        self._repair(snapshot)
        for node in garbage.nameless(nodes):
            message = (
                f'its providerID "{node.spec.provider_id}" names no EC2 instance, so its NodeClaim can\'t be found'
            )
            self._recorder.record(node.ref, "Warning", "ProviderIDUnknown", message)
        orphans = garbage.orphans(loose, claims, nodes, now=self._now)
        self.report.orphans += len(orphans)
        if orphans:
            self._logger.warning("Instances without a NodeClaim will be terminated", extra={"instances": orphans})
        self._send(hints.INSTANCES_ORPHANED, orphans)
        leaving = [c for c in claims if c.metadata.deletion_timestamp is not None]
        self._send(hints.DRAIN, [c.name for c in leaving if continuing.is_overdue(c, now=self._now)])
        alone = [
            *garbage.abandoned(nodes, claims, instances, now=self._now),
            *garbage.unclaimed(nodes, claims, loose, now=self._now),
        ]
        self._send(hints.NODES_DELETING, sorted({n.metadata.name for n in alone}))
        self._each("leftovers", partial(clear, self._client, self._settings.cluster_name, snapshot, instances))

    def _restore(self, claim: NodeClaim, instance: Instance) -> None:
        """Write again which instance a claim has; the instance's tag says so."""
        message = f'status.providerID was "{claim.status.provider_id}", but instance {instance.id} is this claim\'s'
        self._recorder.record(claim.ref, "Warning", "ProviderIDRestored", message)
        self._logger.warning("Restored a NodeClaim's instance", extra={"nodeclaim": claim.name, "why": message})
        writes.update_status(
            self._client,
            resources.NODE_CLAIMS,
            claim,
            lambda c: replace(c, status=replace(c.status, provider_id=instance.provider_id)),
        )

    def _give_up_lost(self, claim: NodeClaim) -> None:
        known = instance_id(claim.status.provider_id)
        message = f"instance {known} is gone; it was terminated from outside"
        if not known:
            message = (
                f'status.providerID "{claim.status.provider_id}" names no instance, and none is tagged with its name'
            )
        self._give_up(claim, "InstanceGone", message)
        self.report.lost += 1

    def _give_up_bereft(self, claim: NodeClaim) -> None:
        known, node = instance_id(claim.status.provider_id), claim.status.node_name
        self._give_up(claim, "NodeGone", f"node {node} was deleted while instance {known} runs, which now goes too")
        self.report.lost += 1

    def _repair(self, snapshot: Snapshot) -> None:
        """Replace nodes that are unhealthy for too long. Their kubelets answer nobody, so nothing is waited for."""
        for pool in snapshot.node_pools:
            found = repair.decide(pool, snapshot.node_claims, snapshot.nodes, now=self._now)
            if found.blocked:
                self._recorder.record(pool.ref, "Warning", "NodeRepairBlocked", found.blocked)
            for one in found.repairs:
                self._each(one.claim.ref, partial(self._replace, one.claim, one.message))

    def _replace(self, claim: NodeClaim, message: str) -> None:
        stamps = {names.TERMINATION_TIMESTAMP: self._now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        self._update(resources.NODE_CLAIMS, claim, partial(_stamped, stamps=stamps))
        self._give_up(claim, "NodeUnhealthy", message)
        self.report.repaired += 1

    def _send(self, about: str, keys: Iterable[str]) -> None:
        for body in hints.bodies(about, cluster=self._settings.cluster_name, keys=keys, time=self._now):
            aws.sqs().send_message(QueueUrl=self._settings.termination_queue_url, MessageBody=body)

    def _each(self, ref: object, work: Callable[[], None]) -> None:
        """Do the work for one object; what goes wrong with it doesn't stop the others."""
        try:
            work()
        except (ApiError, ClientError) as error:
            self.report.failures += 1
            self._logger.warning("An object will be looked at again", extra={"object": str(ref), "why": str(error)})


def _stamped(obj: O, *, stamps: Mapping[str, str]) -> O:
    """The object with these annotations."""
    annotations = {**obj.metadata.annotations, **stamps}
    metadata = replace(obj.metadata, annotations=annotations)
    return cast("O", replace(cast("Struct", obj), metadata=metadata))
