"""The seam to the cloud (Karpenter's CloudProvider): what provisioning, disruption, lifecycle, termination need.

A second cloud must provide one class with the methods of :class:`CloudProvider`, in the place of
:class:`shared.launch.ec2_cloud_provider.EC2CloudProvider`, and:

- :func:`instance_id` and :func:`provider_id`: how a node's ``spec.providerID`` names an instance;
- tags (or labels) on instances, because the owner of an instance is stored nowhere else: the cluster, the NodePool
  (``karpenter.sh/nodepool``), the NodeClaim (``karpenter.sh/nodeclaim``) and the launch group
  (``tenon.sh/launch-group``);
- a node class kind, of which the rest of the code knows the name only (:class:`NodeClass`), with a status that says
  what its selectors select, and whether it is ready;
- repeatable launches: a run may die after any call, and the next one passes the same NodeClaims to ``create``;
- for reboots in place, an instance that keeps its name and its disk; a cloud without them refuses each for good;
- for standby nodes, instances that can be stopped, keep what is on their disk and their name, and are started again; a
  cloud without them leaves NodePools' annotation ``tenon.sh/standby`` without effect.

Everything else (scheduling, disruption, eviction, conditions) works on the values of this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from shared.api import spot
from shared.base.struct import Struct, with_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from shared.api.meta import ObjectRef
    from shared.api.node_overlay import NodeOverlay
    from shared.api.nodeclaim import NodeClaim
    from shared.api.pause import Pause
    from shared.api.quantity import Resources
    from shared.api.spot import SpotOptions
    from shared.commitments.balance import Balance
    from shared.commitments.coverage import OwnCoverage
    from shared.instance_types.instance_type import InstanceType, OfferingKey
    from shared.snapshot import Snapshot

MAX_PORTION = 2_000
"""Instances that one sweep describes: two pages of EC2's answers, and two seconds of a vCPU."""
_LAST_DIGITS = "0123456789abcdef"

FailureKind = Literal["capacity", "configuration", "throttled", "gone", "unconfirmed"]


class NodeClass(Protocol):
    """What the cloud's instances are like: an object that only the cloud provider reads further."""

    @property
    def name(self) -> str:
        """The name that NodePools refer to."""
        ...

    @property
    def ref(self) -> ObjectRef:
        """The object that events and messages are about."""
        ...


class ResolvedNodePools(Struct, kw_only=True):
    """By NodePool: the instance types that it can launch, or why it can't launch, and the node class it launches with.

    NodePools ``on_trial`` launch one NodeClaim at a time, because the last machine that they launched failed to join;
    all of them together with ``trial_in_cluster``. ``spot_options`` are those of NodePools that state any.
    ``short_zones`` say why zones of NodePools aren't offered: sentences about their subnets. ``volume_prices`` are USD
    per hour of a node's volumes, as the offerings have them.

    The node classes have the current status and, for Provisioners, the Provisioner's own kubelet settings.
    ``coverage`` says what commitments pay of the cluster's nodes; None where they don't count.
    ``overlays`` are the NodeOverlays that are applied to the instance types, those that take precedence first;
    ``overlay_conflicts`` says of the others, by name, why they aren't.
    """

    instance_types: Mapping[str, tuple[InstanceType, ...]]
    not_ready: Mapping[str, str]
    node_classes: Mapping[str, NodeClass]
    on_trial: frozenset[str] = frozenset()
    trial_in_cluster: bool = False
    spot_options: Mapping[str, SpotOptions] = {}
    short_zones: Mapping[str, tuple[str, ...]] = {}
    volume_prices: Mapping[str, float] = {}
    coverage: OwnCoverage | None = None
    overlays: tuple[NodeOverlay, ...] = ()
    overlay_conflicts: Mapping[str, str] = {}

    @property
    def unused(self) -> Balance | None:
        """What is left of commitments for further nodes."""
        return self.coverage.unused if self.coverage is not None else None

    @property
    def launchable_types(self) -> Mapping[str, tuple[InstanceType, ...]]:
        """The instance types of the NodePools that can launch."""
        return {pool: types for pool, types in self.instance_types.items() if pool not in self.not_ready}

    def paused(self, pauses: Mapping[str, Pause]) -> ResolvedNodePools:
        """The same, where these NodePools launch nothing; their instance types stay, which tell nodes' prices."""
        return with_fields(self, not_ready={**self.not_ready, **{name: p.message for name, p in pauses.items()}})


class Terminations(Struct, kw_only=True):
    """The ``known`` instances that were terminated; those that can't be are ``refused``, each with the reason."""

    known: tuple[str, ...] = ()
    refused: Mapping[str, str] = {}


class RebootFailure(Struct, kw_only=True):
    """Why an instance wasn't rebooted; ``final``: trying again can't succeed."""

    message: str
    final: bool


class LaunchRequest(Struct, kw_only=True):
    """A NodeClaim to launch. The node class's status is resolved; the types are cheapest first, offerings as of now.

    ``interruption_cost`` is what one interruption of its node costs, in USD. ``spot_options`` are its NodePool's.
    """

    claim: NodeClaim
    node_class: NodeClass
    instance_types: tuple[InstanceType, ...]
    interruption_cost: float = 0.0
    spot_options: SpotOptions = spot.DEFAULT


class LaunchedInstance(Struct, kw_only=True):
    """The instance of a NodeClaim. ``price`` is USD per hour; ``labels`` are those of its type and offering.

    ``unavailable`` are offerings that turned out to have no capacity, although the launch succeeded with another.
    """

    claim_name: str
    instance_id: str
    provider_id: str
    instance_type: str
    zone: str
    capacity_type: str
    image_id: str
    price: float
    capacity: Resources
    allocatable: Resources
    labels: dict[str, str]
    unavailable: tuple[OfferingKey, ...] = ()


class LaunchFailure(Struct, kw_only=True):
    """A NodeClaim without an instance. ``reason`` is CamelCase, ``message`` one sentence for users.

    ``kind`` says what to do. *capacity*: schedule its pods again without the ``unavailable`` offerings.
    *configuration*: a user must change something. *throttled*: retry the same NodeClaim later. *gone*: something that
    its node class selected was deleted; resolve the class again. *unconfirmed*: an earlier call may have launched the
    instance, and EC2 doesn't show it yet; retry the same NodeClaim later, and launch nothing in its place.
    """

    claim_name: str
    kind: FailureKind
    reason: str
    message: str
    unavailable: tuple[OfferingKey, ...] = ()


LaunchResult = LaunchedInstance | LaunchFailure


class Instance(Struct, kw_only=True):
    """An instance; ``state`` is one of pending, running, stopping, stopped, shutting-down, terminated.

    ``state_reason`` is the code of its last state's reason, ``state_message`` its text.
    """

    id: str
    type: str
    zone: str
    state: str
    launched_at: datetime
    tags: Mapping[str, str]
    image_id: str
    capacity_type: str
    private_dns_name: str = ""
    subnet_id: str = ""
    security_groups: tuple[str, ...] = ()
    capacity_reservation: str = ""
    state_reason: str = ""
    state_message: str = ""

    @property
    def provider_id(self) -> str:
        """As in the node's ``spec.providerID``."""
        return provider_id(self.zone, self.id)


class Portion(Struct):
    """A share of a cluster's instances: those whose ids end with some of the hexadecimal digits.

    ``count`` portions, numbered from 0, make up the whole.
    """

    number: int
    count: int

    @classmethod
    def of(cls, instances: int, *, at: datetime) -> Portion:
        """The portion whose turn it is at that minute, in a cluster of about that many instances.

        >>> from datetime import UTC, datetime
        >>> [Portion.of(15_000, at=datetime(2026, 1, 1, 0, minute, tzinfo=UTC)).number for minute in range(4)]
        [0, 1, 2, 3]
        >>> [Portion.of(n, at=datetime(2026, 1, 1, tzinfo=UTC)).count for n in (0, 2_000, 5_000, 15_000, 100_000)]
        [1, 1, 4, 8, 16]
        """
        count = 1
        while count < len(_LAST_DIGITS) and instances > count * MAX_PORTION:
            count *= 2
        return cls(int(at.timestamp() // 60) % count, count)

    @property
    def is_whole(self) -> bool:
        """Whether these are all instances."""
        return self.count == 1

    @property
    def last_digits(self) -> tuple[str, ...]:
        """What the ids of its instances end with."""
        return tuple(_LAST_DIGITS[self.number :: self.count])

    def has(self, known_id: str) -> bool:
        """Whether the instance with this id belongs to it."""
        return self.is_whole or known_id.endswith(self.last_digits)


class InstancesByZone(Struct):
    """Instances that were asked for zone by zone, and the zones for which there was no answer."""

    instances: tuple[Instance, ...]
    unanswered: frozenset[str]


class InstanceNetwork(Struct, kw_only=True):
    """The ids of an instance's subnet, security groups and capacity reservation; empty: not known, or none."""

    subnet: str = ""
    security_groups: frozenset[str] = frozenset()
    capacity_reservation: str = ""


class CloudProvider(Protocol):
    """What a cloud does for one cluster. Errors of its API are raised as they are, unless a method says otherwise."""

    def list_instance_types(
        self, snapshot: Snapshot, *, now: datetime, only_recently_unavailable: bool = False
    ) -> ResolvedNodePools:
        """The instance types that each of the snapshot's NodePools can launch now, with prices and availability.

        ``only_recently_unavailable``: offerings count as unavailable only if they had no capacity within the last
        minute; others are tried again although their entry has not expired. So are zones without free addresses.
        """
        ...

    def create(
        self, requests: Sequence[LaunchRequest], *, now: datetime, recorded: Callable[[], Mapping[str, str]]
    ) -> tuple[LaunchResult, ...]:
        """Launch an instance for each NodeClaim: one result each, in the order of the requests.

        Requests of one launch group may share a call. Offerings without capacity are remembered for
        :meth:`list_instance_types`. Repeating the call for the same NodeClaims never launches a second instance.
        ``recorded`` reads the ids of the instances that NodeClaims have now, by NodeClaim.
        """
        ...

    def start(self, claims: Sequence[NodeClaim], *, now: datetime) -> tuple[LaunchFailure, ...]:
        """Start the stopped instances of these NodeClaims; returns the failures. Repeating is harmless.

        Offerings without capacity are remembered, as by :meth:`create`.
        """
        ...

    def stop(self, instance_ids: Sequence[str]) -> Mapping[str, str]:
        """Stop the instances, so that only their volumes cost; returns the error by instance. Repeating is harmless."""
        ...

    def reboot(self, instance_id: str) -> RebootFailure | None:
        """Request a reboot of the instance, which keeps running on its host; None once the request is accepted."""
        ...

    def delete(self, instance_ids: Sequence[str]) -> Terminations:
        """Terminate the instances; those that don't exist are left out. Repeating is harmless."""
        ...

    def get(self, instance_ids: Sequence[str]) -> tuple[Instance, ...]:
        """Those of the instances that are known, terminated ones too, by id."""
        ...

    def list(self, portion: Portion | None = None) -> tuple[Instance, ...]:
        """Every instance of the cluster, or of the portion, that isn't terminated, by id."""
        ...

    def list_by_zone(self, provider_ids: Sequence[str]) -> InstancesByZone:
        """Those of the instances that aren't terminated: for when :meth:`list` fails as a zone is disrupted."""
        ...

    def is_drifted(self, claim: NodeClaim, node_class: NodeClass, network: InstanceNetwork | None) -> str:
        """How the instance differs from what its node class selects now, in words; empty if it doesn't. Pure."""
        ...


def provider_id(zone: str, instance_id: str) -> str:
    """``aws:///<zone>/<instance id>``, as the AWS cloud provider sets it on nodes.

    >>> provider_id("eu-west-1a", "i-0123456789abcdef0")
    'aws:///eu-west-1a/i-0123456789abcdef0'
    """
    return f"aws:///{zone}/{instance_id}"


def zone_of(provider_id: str) -> str:
    """The zone in a provider id, or "" if it doesn't name an EC2 instance.

    >>> zone_of("aws:///eu-west-1a/i-0123456789abcdef0"), zone_of("kind://node-1")
    ('eu-west-1a', '')
    """
    return provider_id.split("/")[-2] if instance_id(provider_id) else ""


def instance_id(provider_id: str) -> str:
    """The instance id in a provider id, or "" if it doesn't name an EC2 instance.

    >>> instance_id("aws:///eu-west-1a/i-0123456789abcdef0"), instance_id("kind://node-1")
    ('i-0123456789abcdef0', '')
    """
    last = provider_id.rpartition("/")[2]
    return last if provider_id.startswith("aws:///") and last.startswith("i-") else ""
