"""Node groups in one round of provisioning: presented to the decision, and asked for the nodes that it plans on them.

One SetDesiredCapacity call a group, with an absolute number that follows from what was just read, so a repeated call
changes nothing. What was asked for is written to a record first: Auto Scaling's answers may be older, and if the run
dies before its call, the pods are planned again a minute later.

Imported only where the deployment scales node groups.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared.api.duration import format_duration
from shared.api.meta import EventReason, ObjectRef
from shared.base.runtime import in_threads
from shared.base.struct import Struct, with_fields
from shared.cluster import lease_record
from shared.node_groups import group_state, stored_options
from shared.node_groups.discovery import describe
from shared.node_groups.group_decision import decide
from shared.node_groups.group_pools import scale_ups
from shared.node_groups.notifications import BACKED_OFF, SCALED_UP, notify
from shared.node_groups.reader import read_groups
from shared.node_groups.status import CONFIG_MAP as STATUS_CONFIG_MAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.base.settings import ProvisioningSettings
    from shared.cloud_provider import ResolvedNodePools
    from shared.cluster.client import Client
    from shared.cluster.events import Recorder
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.node_groups.group_pools import ScaleUp
    from shared.node_groups.reader import GivenUp, GroupsInView
    from shared.node_groups.services import AutoScaling, GroupServices
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

STATUS = ObjectRef(api_version="v1", kind="ConfigMap", name=STATUS_CONFIG_MAP, namespace=stored_options.NAMESPACE)
"""The object of events about groups, as for Cluster Autoscaler: a group has no object in the cluster."""


def read_node_groups(
    client: Client,
    snapshot: Snapshot,
    services: GroupServices,
    *,
    settings: ProvisioningSettings,
    catalog: InstanceTypeCatalog,
    recorder: Recorder,
    logger: Logger,
    now: datetime,
) -> NodeGroups | None:
    """The groups of a round; None if there are none to scale, or Cluster Autoscaler scales them.

    Raises:
        ApiError: the API server can't be read.
        ClientError, BotoCoreError: AWS refuses a call.
    """
    if stored_options.cluster_autoscaler_runs(client, now=now):
        logger.warning("Node groups aren't scaled", extra={"why": "Cluster Autoscaler is running"})
        return None
    view = read_groups(client, snapshot, services, cluster=settings.cluster_name, catalog=catalog, now=now)
    if view is None:
        return None
    for problem in view.problems:
        logger.warning("An option of node groups can't be used", extra={"why": problem})
        recorder.record(STATUS, "Warning", EventReason("InvalidOption"), problem)
    published = partial(notify, services.events, bus=settings.event_bus_name, cluster=settings.cluster_name, now=now)
    return NodeGroups(client=client, recorder=recorder, logger=logger, services=services, view=view, notify=published)


class NodeGroups(Struct, kw_only=True):
    """The node groups of one round, to be asked for what is decided."""

    recorder: Recorder
    logger: Logger
    client: Client
    services: GroupServices
    view: GroupsInView
    notify: Callable[..., None]
    weights: dict[str, int] = {}
    """Of the expanders, by group, in the last decision."""

    def schedule(self, snapshot: Snapshot, resolved_pools: ResolvedNodePools, leaving: frozenset[str]) -> Decision:
        """The decision for NodePools and groups together, in the order of the expanders where these say one."""
        view = self.view
        known = self.services.cache.setdefault("node-groups:types", {})
        decided = decide(view.pools, view.options, view.priorities, snapshot, resolved_pools, leaving, known=known)
        self.weights.update(decided.weights)
        return decided.decision

    def scale(self, decision: Decision, *, now: datetime) -> tuple[Decision, tuple[ScaleUp, ...]]:
        """Ask the groups for what the decision plans on them; returns the decision without that, and what it was.

        Groups that didn't deliver are asked for no more than they have. One that refuses is reported; its pods are
        planned again.
        """
        planned = self._within_total(scale_ups(decision, self.view.pools))
        states = {**self.view.states}
        for scale_up in planned:
            states[scale_up.group.name] = group_state.after_request(
                states[scale_up.group.name], scale_up.desired, now=now
            )
        text = group_state.encode(states)
        if text != self.view.record.text and not lease_record.write(self.client, self.view.record, text):
            self.logger.warning(
                "Couldn't remember what node groups were asked for", extra={"record": group_state.RECORD}
            )
        in_threads(self._give_up, self.view.given_up, sequential_limit=1)
        in_threads(self._grow, planned, sequential_limit=1)
        groups = {pool.pool_name for pool in self.view.pools}
        own = tuple(claim for claim in decision.new_node_claims if claim.node_pool not in groups)
        return with_fields(decision, new_node_claims=own), planned

    def _within_total(self, planned: Iterable[ScaleUp]) -> tuple[ScaleUp, ...]:
        """As many of these as ``max-nodes-total`` allows."""
        most = self.view.options.max_nodes_total
        if most is None:
            return tuple(planned)
        left = most - sum(pool.group.desired for pool in self.view.pools)
        allowed = []
        for scale_up in sorted(planned, key=lambda s: -self.weights.get(s.group.name, 0)):
            nodes = max(0, min(scale_up.nodes, left))
            left -= nodes
            if nodes < scale_up.nodes:
                text = f"group {scale_up.group.name} needs {scale_up.nodes} more, and max-nodes-total is {most}"
                self.logger.warning("A node group can't grow as planned", extra={"why": text})
                self.recorder.record(STATUS, "Warning", EventReason("MaxNodesTotalReached"), text)
            if nodes:
                allowed.append(with_fields(scale_up, nodes=nodes))
        return tuple(allowed)

    def _give_up(self, given_up: GivenUp) -> None:
        group = given_up.group
        error = _ask_for_no_more(self.services.autoscaling(), group.name)
        extra = {"group": group.name, "why": given_up.why, **({"error": error} if error else {})}
        self.logger.warning("A node group backs off", extra=extra)
        text = f"group {group.name} is left alone for {format_duration(given_up.backoff)}: {given_up.why}"
        self.recorder.record(STATUS, "Warning", EventReason("ScaleUpTimedOut"), text)
        seconds = round(given_up.backoff.total_seconds())
        self.notify(BACKED_OFF, group=group.name, why=given_up.why, seconds=seconds)

    def _grow(self, scale_up: ScaleUp) -> None:
        group = scale_up.group
        error = _set_desired_capacity(self.services.autoscaling(), group.name, scale_up.desired)
        if error is not None:
            self.logger.error("A node group couldn't be scaled up", extra={"group": group.name, "why": error})
            text = f"group {group.name} can't be set to {scale_up.desired}: {error}"
            self.recorder.record(STATUS, "Warning", EventReason("FailedToScaleUpGroup"), text)
            return
        self.logger.info(
            "Scaled up a node group",
            extra={"group": group.name, "from": group.desired, "to": scale_up.desired, "pods": len(scale_up.pods)},
        )
        text = f"group {group.name} size set to {scale_up.desired} instead of {group.desired} (max: {group.maximum})"
        self.recorder.record(STATUS, "Normal", EventReason("ScaledUpGroup"), text)
        sizes = {"from": group.desired, "to": scale_up.desired, "maximum": group.maximum}
        self.notify(SCALED_UP, group=group.name, pods=len(scale_up.pods), **sizes)


def _ask_for_no_more(autoscaling: AutoScaling, name: str) -> str | None:
    """Ask a group for what it has now; what is wrong, None if it took it."""
    try:
        group = describe(autoscaling, name)
    except (BotoCoreError, ClientError) as error:
        return str(error)
    if group is None:
        return None
    reduced = group_state.reduced_desired(group)
    return _set_desired_capacity(autoscaling, name, reduced) if reduced < group.desired_capacity else None


def _set_desired_capacity(autoscaling: AutoScaling, group: str, desired: int) -> str | None:
    """Ask a group for that many instances; what is wrong, None if it took it."""
    try:
        autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=desired)
    except (BotoCoreError, ClientError) as error:
        return str(error)
    return None
