"""Plans gangs: the pods of a PodGroup get nodes for its minimum at once, or none.

1. Each gang is planned by itself, in each zone and wherever it fits. One zone is kept if all of it fits there and that
   costs little more, as its pods talk to each other; it is a must where the PodGroup or its network interfaces ask for
   one. A gang that doesn't fit by itself gets no nodes.
2. All gangs are planned with the other pods. If each is whole, that is the plan.
3. Otherwise they compete for what is left of limits: they are added one by one, by priority and then by age, and a gang
   that isn't whole, or leaves an earlier one in part, gets no nodes.

Pods that run or are nominated count for their gang's minimum, so that a gang may grow pod by pod.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.pod_group import missing
from shared.api.pod_references import KUBERNETES
from shared.api.pods import is_terminating, pod_group_key, requests
from shared.api.quantity import QuantityError
from shared.base.plurals import plural
from shared.base.struct import MutableStruct, Struct, with_fields
from shared.scheduling.decision import Placement, UnschedulableReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shared.api.kubernetes import Pod
    from shared.api.pod_group import PodGroup
    from shared.api.pod_references import PodGroupKey
    from shared.instance_types.instance_type import InstanceType
    from shared.scheduling.buffers.chunk_placement import Place
    from shared.scheduling.state.state_nodes import StateNodes

MOST = 20
"""Gangs that a decision plans, the first by priority and age; a later decision plans the rest."""
ZONE_PREMIUM = 0.02
"""By how much a plan within one zone may cost more than one across zones. Tenon's figure: traffic between zones costs
USD 0.01 a GB in each direction, and slows down what waits for the slowest member."""
EFA = "vpc.amazonaws.com/efa"
"""A network interface whose traffic doesn't leave its zone (EC2 user guide, "Elastic Fabric Adapter")."""
_OLDEST = datetime(1970, 1, 1, tzinfo=UTC)


class Gang(MutableStruct, kw_only=True):
    """The pods of one PodGroup that need a node; ``present`` others have one."""

    group: PodGroup
    pods: list[Pod]
    present: int = 0

    @property
    def name(self) -> str:
        """For messages."""
        return str(self.group.key)

    @property
    def order(self) -> tuple[int, datetime, PodGroupKey]:
        """Which gang is first: by priority, then the older PodGroup."""
        priority = max((pod.spec.priority or 0 for pod in self.pods), default=0)
        return -priority, self.group.created or _OLDEST, self.group.key

    @property
    def needs_one_zone(self) -> bool:
        """Whether its pods can't be in different zones."""
        return names.ZONE in self.group.topology or any(_uses(pod, EFA) for pod in self.pods)

    def is_whole(self, placement: Placement) -> bool:
        """Whether it has its minimum with this placement."""
        return self.placed(placement) + self.present >= self.group.minimum

    def placed(self, placement: Placement) -> int:
        """How many of its pods the placement has a node for."""
        return sum(pod.key not in placement.errors for pod in self.pods)

    def problem(self) -> str:
        """Why it can't be planned at all; "" if it can."""
        if self.group.problem:
            return self.group.problem
        if keys := [key for key in self.group.topology if key not in {names.ZONE, names.REGION}]:
            return f"not supported: one domain of {', '.join(keys)}"
        exist = len(self.pods) + self.present
        if exist < self.group.minimum:
            return f"{exist} exist of {plural(self.group.minimum, 'pod')} that it needs"
        return ""


class GangPlanner(Struct, kw_only=True, eq=False):
    """Plans pods by ``plan``, gangs all or nothing. ``instance_types`` by NodePool say which zones there are."""

    plan: Place
    pod_groups: Mapping[PodGroupKey, PodGroup]
    instance_types: Mapping[str, tuple[InstanceType, ...]]
    members_without_node: Iterable[Pod] = ()
    """Pods that count for their gang's minimum and are on no node: deferred ones, and of files those that succeeded."""

    def place(self, state_nodes: StateNodes, pods: Iterable[Pod]) -> Placement:
        """The placement of the pods: of each gang at least its minimum, or none."""
        gangs, single_pods = self._apart(state_nodes, pods)
        if not gangs:
            return self.plan(state_nodes, single_pods)
        refused: dict[str, UnschedulableReason] = {}
        possible: list[Gang] = []
        for gang in sorted(gangs, key=lambda g: g.order):
            if problem := gang.problem() or ("other PodGroups are planned first" if len(possible) >= MOST else ""):
                refused |= _refuse(gang, problem)
                continue
            incomplete = self._choose_zone(gang, state_nodes)
            if incomplete is None:
                possible.append(gang)
            else:
                refused |= _incomplete(gang, incomplete)
        together = self.plan(state_nodes, [*single_pods, *_pods(possible)])
        if not all(gang.is_whole(together) for gang in possible):
            together = self._one_by_one(possible, single_pods, state_nodes, refused)
        return with_fields(together, errors=dict(sorted({**together.errors, **refused}.items())))

    def _one_by_one(
        self,
        gangs: Iterable[Gang],
        single_pods: Sequence[Pod],
        state_nodes: StateNodes,
        refused: dict[str, UnschedulableReason],
    ) -> Placement:
        """The placement of as many gangs as fit, first come, first served; the rest is added to ``refused``."""
        accepted: list[Gang] = []
        best = self.plan(state_nodes, single_pods) if single_pods else Placement()
        for gang in gangs:
            trial = self.plan(state_nodes, [*single_pods, *_pods([*accepted, gang])])
            if all(member.is_whole(trial) for member in (*accepted, gang)):
                accepted.append(gang)
                best = trial
            else:
                refused |= _incomplete(gang, trial)
        return best

    def _choose_zone(self, gang: Gang, state_nodes: StateNodes) -> Placement | None:
        """Bind the gang's pods to a zone if that is best. Returns the gang's placement by itself if it isn't whole."""
        anywhere = self.plan(state_nodes, gang.pods)
        if not gang.is_whole(anywhere):
            return anywhere
        in_zones = [
            (cost, zone, pods)
            for zone in self._zones(state_nodes, gang)
            if gang.is_whole(placement := self.plan(state_nodes, pods := [_in_zone(p, zone) for p in gang.pods]))
            for cost in (_cost(placement),)
        ]
        cheapest = min(in_zones, key=lambda option: option[:2], default=None)
        if cheapest is None:
            return _in_no_zone(gang) if gang.needs_one_zone else None
        cost, _, pods = cheapest
        if gang.needs_one_zone or cost <= _cost(anywhere) * (1 + ZONE_PREMIUM):
            gang.pods = pods
        return None

    def _zones(self, state_nodes: StateNodes, gang: Gang) -> list[str]:
        """The zones to try: those of members that have a node, or all."""
        key = gang.group.key
        own = {
            node.labels[names.ZONE]
            for node in state_nodes.nodes
            if gang.present and names.ZONE in node.labels and any(pod_group_key(pod) == key for pod in node.pods)
        }
        offered = (o.zone for types in self.instance_types.values() for t in types for o in t.offerings)
        known = (node.labels[names.ZONE] for node in state_nodes.nodes if names.ZONE in node.labels)
        return sorted(own or {*offered, *known})

    def _apart(self, state_nodes: StateNodes, pods: Iterable[Pod]) -> tuple[list[Gang], list[Pod]]:
        """The gangs of the pods, with how many of their pods have a node, and the pods of none."""
        gangs: dict[PodGroupKey, Gang] = {}
        single_pods: list[Pod] = []
        for pod in pods:
            key = pod_group_key(pod)
            group = None if key is None else self._group(key)
            if key is None or group is None:
                single_pods.append(pod)
            else:
                gangs.setdefault(key, Gang(group=group, pods=[])).pods.append(pod)
        if gangs:
            on_nodes = (pod for node in state_nodes.nodes for pod in node.pods)
            present = Counter(pod_group_key(p) for p in (*on_nodes, *self.members_without_node) if counts(p))
            for key, gang in gangs.items():
                gang.present = present[key]
        return list(gangs.values()), single_pods

    def _group(self, key: PodGroupKey) -> PodGroup | None:
        """The PodGroup; None if its pods are planned one by one."""
        group = self.pod_groups.get(key)
        if group is None:
            return missing(key, "it isn't known") if key.api_group == KUBERNETES else None
        return group if group.minimum > 1 or group.problem or group.topology else None


def counts(pod: Pod) -> bool:
    """Whether a pod that has or had a node counts for its gang's minimum: it runs, or has succeeded."""
    return pod.status.phase != "Failed" and not is_terminating(pod)


def _pods(gangs: Iterable[Gang]) -> list[Pod]:
    return [pod for gang in gangs for pod in gang.pods]


def _cost(placement: Placement) -> float:
    """USD per hour of the new nodes."""
    return sum(claim.cheapest.effective_price for claim in placement.node_claims)


def _in_zone(pod: Pod, zone: str) -> Pod:
    """The pod with the zone as one more requirement."""
    selector = {**pod.spec.node_selector, names.ZONE: zone}
    return with_fields(pod, spec=with_fields(pod.spec, node_selector=selector))


def _uses(pod: Pod, resource: str) -> bool:
    try:
        return requests(pod).get(resource, 0) > 0
    except QuantityError:
        return False


def _in_no_zone(gang: Gang) -> Placement:
    """No place for a gang that fits in several zones only."""
    why = UnschedulableReason(message="all of them have to be in one zone, and none has capacity for all")
    return Placement(errors=dict.fromkeys((pod.key for pod in gang.pods), why))


def _incomplete(gang: Gang, placement: Placement) -> dict[str, UnschedulableReason]:
    """The reason for each pod of a gang that isn't whole: how many fit, and why the first one doesn't."""
    placed = gang.placed(placement)
    left_out = [pod.key for pod in gang.pods if pod.key in placement.errors]
    if not left_out:  # it leaves an earlier gang in part
        return _refuse(gang, "with its pods, an earlier PodGroup would not be whole")
    first = placement.errors[left_out[0]]
    whole = f"{placed + gang.present} of the {plural(gang.group.minimum, 'pod')} that it needs at once would fit"
    why = first.message.removeprefix("unschedulable: ")
    return _refuse(gang, f"{whole}; pod {left_out[0]}: {why}", first.criteria)


def _refuse(gang: Gang, why: str, criteria: Mapping[str, str] | None = None) -> dict[str, UnschedulableReason]:
    reason = UnschedulableReason(message=f"{gang.name}: {why}; no node is launched for it", criteria=criteria or {})
    return dict.fromkeys((pod.key for pod in gang.pods), reason)
