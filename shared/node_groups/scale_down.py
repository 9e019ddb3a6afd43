"""Which nodes of groups aren't needed, by Cluster Autoscaler's rules or those of NodePools. Pure.

A node is unneeded while its utilization is below the threshold, its pods may move, and they fit on the nodes that stay.
By the rules of NodePools its utilization doesn't matter, and only annotations and PodDisruptionBudgets keep pods. It is
removed when it has been unneeded for long enough. Since when it is unneeded is written on the node, as Cluster
Autoscaler does: taint ``DeletionCandidateOfClusterAutoscaler``, with the seconds since 1970 as its value.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from shared.api.kubernetes import Taint
from shared.api.meta import annotated, condition
from shared.api.pods import (
    controller,
    disruptions_allowed,
    is_daemon,
    is_mirror,
    is_owned_by_node,
    is_pending,
    is_protected,
    is_reschedulable,
    is_terminal,
    requests,
)
from shared.api.quantity import CPU, MEMORY, QuantityError, parse_resources
from shared.api.selectors import SelectorError, matches
from shared.api.taints import NO_SCHEDULE, PREFER_NO_SCHEDULE, with_taint, without_taint
from shared.base.struct import Struct, with_fields
from shared.node_groups.node_interruption import interruption_of
from shared.node_groups.status import REMOVED_TAINT, STARTUP
from shared.scheduling.scheduler import schedule_on_existing_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from shared.api.kubernetes import Node, Pod, PodDisruptionBudget
    from shared.node_groups.node_group import NodeGroup
    from shared.node_groups.options import NodeGroupOptions
    from shared.snapshot import Snapshot

CANDIDATE_TAINT = "DeletionCandidateOfClusterAutoscaler"
"""The key of Cluster Autoscaler's taint, as that of REMOVED_TAINT; their values are seconds since 1970."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SCALE_DOWN_DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
REMOVING = "tenon.sh/removing"
"""Annotation of a node whose removal has begun: a taint without it is Cluster Autoscaler's, and is taken off."""
SCALE_DOWN_FAILED = "tenon.sh/scale-down-failed"
"""Annotation of a node whose removal was given up, in seconds since 1970."""
_CONTROLLERS = frozenset({"DaemonSet", "Job", "ReplicaSet", "ReplicationController", "StatefulSet"})
MAX_SIMULATED = 30
"""How many nodes with pods are looked at in one sweep (Cluster Autoscaler's
scale-down-non-empty-candidates-count)."""
_PERMILLE = 1000


class MemberNode(Struct, kw_only=True):
    """A node of a group, with its pods that haven't ended."""

    node: Node
    group: NodeGroup
    pods: tuple[Pod, ...]

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.metadata.name

    @property
    def moving(self) -> tuple[Pod, ...]:
        """The pods that need a place elsewhere when the node goes."""
        return tuple(pod for pod in self.pods if is_reschedulable(pod))


class ScaleDownPlan(Struct, kw_only=True):
    """What to do with nodes: ``unneeded`` and ``needed`` ones to mark, those to ``remove``; and why others stay."""

    unneeded: tuple[MemberNode, ...] = ()
    needed: tuple[MemberNode, ...] = ()
    remove: tuple[MemberNode, ...] = ()
    reasons: Mapping[str, str] = {}


def taint_time(node: Node, key: str) -> datetime | None:
    """The time in the value of the node's taint; None without it, the earliest if it can't be read."""
    taint = next((t for t in node.spec.taints if t.key == key), None)
    if taint is None:
        return None
    return datetime.fromtimestamp(int(taint.value), UTC) if taint.value.isdigit() else datetime.fromtimestamp(0, UTC)


def _seconds(text: str) -> int:
    return int(text) if text.isdigit() else 0


def is_being_removed(node: Node) -> bool:
    """Whether the node's removal has begun, and wasn't given up."""
    return REMOVING in node.metadata.annotations and taint_time(node, REMOVED_TAINT) is not None


def with_removal(node: Node, now: datetime) -> Node:
    """The node as one whose removal begins; as it is if it has begun."""
    if is_being_removed(node):
        return node
    taints = with_taint(node.spec.taints, timed_taint(REMOVED_TAINT, now))
    metadata = annotated(node.metadata, {REMOVING: "true", SCALE_DOWN_FAILED: None})
    return with_fields(node, metadata=metadata, spec=with_fields(node.spec, taints=taints))


def without_removal(node: Node) -> Node:
    """The node as one that takes pods, and isn't unneeded."""
    taints = without_taint(without_taint(node.spec.taints, REMOVED_TAINT), CANDIDATE_TAINT)
    return with_fields(
        node, metadata=annotated(node.metadata, {REMOVING: None}), spec=with_fields(node.spec, taints=taints)
    )


def timed_taint(key: str, now: datetime) -> Taint:
    """The taint with the time as its value; it keeps pods away if it is that of removed nodes."""
    effect = NO_SCHEDULE if key == REMOVED_TAINT else PREFER_NO_SCHEDULE
    return Taint(key=key, value=str(int(now.timestamp())), effect=effect)


def member_nodes(snapshot: Snapshot, groups: Iterable[NodeGroup]) -> tuple[MemberNode, ...]:
    """The nodes of the groups' instances that are in service, without those of NodeClaims."""
    group_of = {instance.provider_id: group for group in groups for instance in group.instances if instance.in_service}
    claimed = {claim.status.provider_id for claim in snapshot.node_claims}
    pods: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.spec.node_name and not is_terminal(pod):
            pods.setdefault(pod.spec.node_name, []).append(pod)
    return tuple(
        MemberNode(node=node, group=group, pods=tuple(pods.get(node.metadata.name, ())))
        for node in sorted(snapshot.nodes, key=lambda node: node.metadata.name)
        if (group := group_of.get(node.spec.provider_id)) is not None
        and node.spec.provider_id not in claimed
        and node.metadata.deletion_timestamp is None
    )


def plan_scale_down(
    snapshot: Snapshot, members: Sequence[MemberNode], options: NodeGroupOptions, *, now: datetime
) -> ScaleDownPlan:
    """Which of the nodes are unneeded, and which of them are to be removed now."""
    leaving = [m for m in members if _removed_at(m) is not None]
    kept = [m for m in members if _removed_at(m) is None]
    reasons = _needed(snapshot, kept, leaving, options, now=now)
    unneeded = [m for m in sorted(kept, key=_removal_order) if m.name not in reasons]
    removes = options.scale_down_enabled and not _is_cooling_down(members, leaving, options, now=now)
    return ScaleDownPlan(
        unneeded=tuple(unneeded),
        needed=tuple(m for m in kept if m.name in reasons and unneeded_since(m) is not None),
        remove=_due(unneeded, leaving, options, now=now) if removes else (),
        reasons=reasons,
    )


def _needed(
    snapshot: Snapshot,
    kept: Sequence[MemberNode],
    leaving: Sequence[MemberNode],
    options: NodeGroupOptions,
    *,
    now: datetime,
) -> dict[str, str]:
    """The nodes that can't go, and why. All others can go together."""
    removable = {m.group.name: m.group.desired - m.group.minimum for m in (*kept, *leaving)}
    for member in leaving:
        removable[member.group.name] -= 1
    fits = _Fits(snapshot, frozenset(m.name for m in leaving))
    reasons: dict[str, str] = {}
    for member in sorted(kept, key=_removal_order):
        why = _blocked(member, snapshot, options, now=now)
        if not why and removable[member.group.name] <= 0:
            why = "its group is at its minimum size"
        if not why and not fits.without(member):
            why = "its pods fit on no remaining node"
        if why:
            reasons[member.name] = why
        else:
            removable[member.group.name] -= 1
    return reasons


def _removed_at(member: MemberNode) -> datetime | None:
    return taint_time(member.node, REMOVED_TAINT)


def _removal_order(member: MemberNode) -> tuple[bool, int, str]:
    """Empty nodes first, then those with the least utilization."""
    return bool(member.moving), utilization(member, ignore_daemons=False), member.name


class _Fits:
    """Whether the pods of ever more nodes fit on the remaining ones, as they are now, and pending pods still do."""

    def __init__(self, snapshot: Snapshot, leaving: frozenset[str]) -> None:
        self._snapshot = snapshot
        self._leaving = leaving
        self._simulated = 0
        self._has_claims_on_room = bool(snapshot.capacity_buffers) or any(is_pending(pod) for pod in snapshot.pods)
        self._without_room: frozenset[str] | None = None

    def without(self, member: MemberNode) -> bool:
        """Whether they fit without this node; then it counts as gone."""
        leaving = self._leaving | {member.name}
        if member.moving or self._has_claims_on_room:
            if self._simulated >= MAX_SIMULATED:
                return False
            self._simulated += 1
            if self._without_room is None:
                self._without_room = self._unplaced(self._leaving)
            if not self._without_room.issuperset(self._unplaced(leaving)):
                return False
        self._leaving = leaving
        return True

    def _unplaced(self, leaving: frozenset[str]) -> frozenset[str]:
        """The pods and chunks of CapacityBuffers that have no room without these nodes."""
        decision = schedule_on_existing_nodes(self._snapshot, leaving)
        return frozenset((*decision.pod_errors, *decision.chunk_errors))


def utilization(member: MemberNode, *, ignore_daemons: bool) -> int:
    """The larger share, in thousandths, of CPU or memory that the node's pods request."""
    try:
        allocatable = parse_resources(member.node.status.allocatable)
    except QuantityError:
        return _PERMILLE
    used = {CPU: 0, MEMORY: 0}
    for pod in member.pods:
        if ignore_daemons and is_daemon(pod):
            continue
        try:
            requested = requests(pod)
        except QuantityError:
            continue
        for name in used:
            used[name] += requested.get(name, 0)
    return max((_PERMILLE * used[name] // allocatable[name] for name in used if allocatable.get(name)), default=0)


def _blocked(member: MemberNode, snapshot: Snapshot, options: NodeGroupOptions, *, now: datetime) -> str:
    """Why the node isn't to be removed, whatever room there is elsewhere; "" if it may be."""
    if member.group.problems:
        return member.group.problems[0]
    if annotation := _blocking_annotation(member.node, now=now):
        return annotation
    if not _is_ready(member.node):
        created = member.node.metadata.creation_timestamp
        if created is not None and now - created < STARTUP:
            return "it is starting"
        return "" if options.scale_down_unready_enabled else "the node isn't Ready"
    if not options.consolidates and (why := _utilized(member, options)):
        return why
    return next(_blocking_pods(member, snapshot.pod_disruption_budgets, options, now=now), "")


def _utilized(member: MemberNode, options: NodeGroupOptions) -> str:
    """Why the node stays, by its utilization; "" if that is below the threshold."""
    threshold = member.group.scale_down.utilization_threshold
    threshold = options.scale_down_utilization_threshold if threshold is None else threshold
    share = utilization(member, ignore_daemons=options.ignore_daemonsets_utilization)
    if share < threshold:
        return ""
    return f"its utilization is {share / _PERMILLE:.2f}, and the threshold {threshold / _PERMILLE:.2f}"


def _blocking_annotation(node: Node, *, now: datetime) -> str:
    """Why the node stays, by its annotations; "" if they don't say so."""
    annotations = node.metadata.annotations
    interruption = interruption_of(node)
    if interruption is not None and not interruption.is_past(now):
        return "its instance ends, and its group replaces it"
    if annotations.get(SCALE_DOWN_DISABLED) == "true":
        return f"annotation {SCALE_DOWN_DISABLED}"
    if is_protected(annotations, since=node.metadata.creation_timestamp, now=now):
        return "the node has annotation karpenter.sh/do-not-disrupt"
    return ""


def _is_ready(node: Node) -> bool:
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _blocking_pods(
    member: MemberNode, budgets: Sequence[PodDisruptionBudget], options: NodeGroupOptions, *, now: datetime
) -> Iterator[str]:
    for pod in member.pods:
        if is_daemon(pod) or is_mirror(pod) or is_owned_by_node(pod):
            continue
        annotation = pod.metadata.annotations.get(SAFE_TO_EVICT)
        own = [b for b in budgets if b.metadata.namespace == pod.metadata.namespace and _selects(b, pod)]
        if annotation == "false":
            yield f"pod {pod.key} has annotation {SAFE_TO_EVICT}: false"
        elif is_protected(pod.metadata.annotations, since=pod.status.start_time, now=now):
            yield f"pod {pod.key} has annotation karpenter.sh/do-not-disrupt"
        elif any(disruptions_allowed(budget) < 1 for budget in own):
            yield f"a PodDisruptionBudget allows no eviction of pod {pod.key}"
        elif annotation != "true" and not options.consolidates:
            yield from _unmovable(pod, has_budget=bool(own), options=options)


def _selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    try:
        return matches(budget.spec.selector, pod.metadata.labels)
    except SelectorError:
        return True


def _unmovable(pod: Pod, *, has_budget: bool, options: NodeGroupOptions) -> Iterator[str]:
    """Why a pod without the annotation safe-to-evict isn't moved."""
    owner = controller(pod.metadata)
    if owner is not None and options.skip_nodes_with_custom_controller_pods and owner.kind not in _CONTROLLERS:
        yield f"pod {pod.key} is of a custom controller, {owner.kind} {owner.name}"
    if owner is None:
        yield f"pod {pod.key} has no controller that would create it again"
    if options.skip_nodes_with_system_pods and pod.metadata.namespace == "kube-system" and not has_budget:
        yield f"pod {pod.key} is of kube-system and has no PodDisruptionBudget"
    if options.skip_nodes_with_local_storage and any(v.is_local for v in pod.spec.volumes):
        yield f"pod {pod.key} has local storage"


def _is_cooling_down(
    members: Iterable[MemberNode], leaving: Iterable[MemberNode], options: NodeGroupOptions, *, now: datetime
) -> bool:
    """Whether a node was added or removed so recently that none is to be removed now."""
    last_added = max((m.node.metadata.creation_timestamp or now for m in members), default=now)
    last_removed = max((at for m in leaving if (at := _removed_at(m)) is not None), default=None)
    if now - last_added < options.scale_down_delay_after_add:
        return True
    failed = max((_seconds(m.node.metadata.annotations.get(SCALE_DOWN_FAILED, "")) for m in members), default=0)
    if now.timestamp() - failed < options.scale_down_delay_after_failure.total_seconds():
        return True
    return last_removed is not None and now - last_removed < options.scale_down_delay_after_delete


def _due(
    unneeded: Iterable[MemberNode], leaving: Sequence[MemberNode], options: NodeGroupOptions, *, now: datetime
) -> tuple[MemberNode, ...]:
    """Those that have been unneeded for long enough, as many as may be removed at once."""
    due = [m for m in unneeded if (since := unneeded_since(m)) is not None and now - since >= removal_delay(m, options)]
    empty = [m for m in due if not m.moving][: max(0, options.max_empty_bulk_delete - len(leaving))]
    draining = sum(bool(m.moving) for m in leaving)
    full = [m for m in due if m.moving][: max(0, options.max_drain_parallelism - draining)]
    return (*empty, *full)


def unneeded_since(member: MemberNode) -> datetime | None:
    """Since when the node is marked as unneeded."""
    return taint_time(member.node, CANDIDATE_TAINT)


def removal_delay(member: MemberNode, options: NodeGroupOptions) -> timedelta:
    """How long the node must be unneeded before it is removed."""
    own = member.group.scale_down
    if not _is_ready(member.node):
        return own.unready_time if own.unready_time is not None else options.scale_down_unready_time
    return own.unneeded_time if own.unneeded_time is not None else options.scale_down_unneeded_time
