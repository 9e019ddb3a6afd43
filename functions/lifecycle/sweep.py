"""One look at everything that lives: claims come to their nodes, statuses say what is, what is left behind is found.

Each object is dealt with on its own: what goes wrong with one is logged with its name, and the others go on. Nothing
here terminates anything: claims are deleted, and what must be drained or terminated is told to the termination
function.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from shared import aws, hints, host
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import Condition, ObjectMeta, Struct, is_true
from shared.cluster import resources, writes
from shared.cluster.connect import connect, describe
from shared.cluster.errors import ApiError
from shared.cluster.events import recorder
from shared.cluster.reading import read
from shared.launch.instances import describe_cluster_instances, instance_id
from shared.launch.supply import resolved
from shared.lifecycle import garbage, liveness, pools, registration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from aws_lambda_powertools import Logger

    from functions.lifecycle.settings import LifecycleSettings
    from shared.api.kubernetes import Node
    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.nodepool import NodePool
    from shared.snapshot import Invalid, Snapshot


@dataclass(kw_only=True)
class Report:
    """What a sweep changed, for its log line and metrics."""

    registered: int = 0
    initialized: int = 0
    given_up: int = 0
    lost: int = 0
    orphans: int = 0
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
        self.report = Report()

    def look(self, *, everywhere: bool) -> Report:
        """Bring everything forward; ``everywhere``: also compare with EC2, which costs a call."""
        snapshot = read(self._client, now=self._now)
        nodes = {n.spec.provider_id: n for n in snapshot.nodes if n.spec.provider_id}
        for claim in snapshot.node_claims:
            self._each(claim.ref, partial(self._advance, claim, nodes))
        self._statuses(snapshot)
        if everywhere:
            self._collect(snapshot)
        return self.report

    def _advance(self, claim: NodeClaim, nodes: Mapping[str, Node]) -> None:
        if claim.metadata.deletion_timestamp is not None:
            return
        node = nodes.get(claim.status.provider_id) if claim.status.provider_id else None
        if node is not None:
            self._join(claim, node)
            return
        given_up = liveness.given_up(claim, now=self._now)
        if given_up is not None:
            self._recorder.record(claim.ref, "Warning", given_up.reason, given_up.message)
            self._logger.warning("Gave up on a NodeClaim", extra={"nodeclaim": claim.name, "why": given_up.message})
            writes.delete(self._client, resources.NODE_CLAIMS, claim)
            self.report.given_up += 1

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
                if type_ == nodeclaim.REGISTERED:
                    self.report.registered += 1
                else:
                    self.report.initialized += 1

    def _statuses(self, snapshot: Snapshot) -> None:
        """Conditions of what can't be used, of the classes as AWS has them now, and of the pools."""
        for broken in snapshot.invalid:
            self._each(broken.ref, partial(self._tell_invalid, broken))
        cluster = describe(aws.eks(), self._settings.cluster_name)
        live = resolved(
            snapshot.node_classes,
            cluster,
            default_instance_profile=self._settings.node_instance_profile,
            now=self._now,
        )
        for node_class in snapshot.node_classes:
            self._each(node_class.ref, partial(self._write_class, node_class, live[node_class.name]))
        for pool in snapshot.node_pools:
            self._each(pool.ref, partial(self._write_pool, pool, snapshot, live))

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
                p, status=pools.status(p, snapshot.node_claims, snapshot.nodes, node_class, now=self._now)
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
        """Compare with EC2: claims whose instance is gone, instances and nodes that nobody claims, drains to go on."""
        instances = describe_cluster_instances(self._settings.cluster_name)
        for claim in garbage.lost(snapshot.node_claims, instances, now=self._now):
            self._each(claim.ref, partial(self._give_up_lost, claim))
        orphans = garbage.orphans(instances, snapshot.node_claims, now=self._now)
        self.report.orphans += len(orphans)
        if orphans:
            self._logger.warning("Instances without a NodeClaim will be terminated", extra={"instances": orphans})
        self._send(hints.INSTANCES_ORPHANED, orphans)
        leaving = [c.name for c in snapshot.node_claims if c.metadata.deletion_timestamp is not None]
        abandoned = garbage.abandoned(snapshot.nodes, snapshot.node_claims, instances)
        self._send(hints.DRAIN, leaving)
        self._send(hints.NODES_DELETING, [n.metadata.name for n in abandoned])

    def _give_up_lost(self, claim: NodeClaim) -> None:
        message = f"instance {instance_id(claim.status.provider_id)} is gone; it was terminated from outside"
        self._recorder.record(claim.ref, "Warning", "InstanceGone", message)
        self._logger.warning("The instance of a NodeClaim is gone", extra={"nodeclaim": claim.name})
        writes.delete(self._client, resources.NODE_CLAIMS, claim)
        self.report.lost += 1

    def _send(self, about: str, keys: Iterable[str]) -> None:
        for body in hints.bodies(about, cluster=self._settings.cluster_name, keys=keys, time=self._now):
            aws.sqs().send_message(QueueUrl=self._settings.termination_queue_url, MessageBody=body)

    def _each(self, ref: object, work: Callable[[], None]) -> None:
        """Do the work for one object; what goes wrong with it doesn't stop the others."""
        try:
            work()
        except ApiError as error:
            self.report.failures += 1
            self._logger.warning("An object will be looked at again", extra={"object": str(ref), "why": str(error)})
