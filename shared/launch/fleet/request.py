"""The CreateFleet request of a launch group: its launch templates, tags, allocation strategy and other parameters.

A launch template holds nothing that belongs to one NodeClaim. The tags of each NodeClaim are set after the launch.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from shared.ami_family.bootstrap import UNREGISTERED, Bootstrap
from shared.ami_family.families import family_of, is_version_held, render_user_data
from shared.api import labels
from shared.api.devices import EFA
from shared.api.kubelet import with_values
from shared.api.nodeclass import INTERRUPTIBLE, EC2NodeClass
from shared.api.spot import PRICE_CAPACITY_OPTIMIZED
from shared.base.struct import Struct, with_fields
from shared.instance_types.instance_type import RESERVATION_ID
from shared.instance_types.provider import RAID0
from shared.launch import launch_template
from shared.launch.node_class.kubernetes_version import images_version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.ami_family.families import Family
    from shared.api.nodeclaim import NodeClaim
    from shared.cloud_provider import LaunchRequest
    from shared.cluster.connect import ClusterInfo
    from shared.launch.fleet.overrides import FleetPlan, Override
    from shared.launch.launch_template import LaunchTemplate

_CLIENT_TOKEN_LENGTH = 40

_MAX_TEMPLATES = 50
"""The launch templates that EC2 takes in one CreateFleet call."""
_MAX_REQUEST = 120_000
"""Bytes of a CreateFleet call. EC2 refuses larger ones (InvalidInput, "the payload for the body of the request is too
large", github.com/aws/karpenter-provider-aws/issues/5776: a hundred instance types in several zones); the limit isn't
documented, and is taken to be 128 KB."""
_OVERRIDE = 280
"""Bytes of an override: four parameters of at most 75."""
_TAG = 70
"""Bytes of the names of a tag's parameters."""


class TemplateKey(NamedTuple):
    """What overrides of one launch template share.

    ``reservation_id`` is "" for no capacity reservation; ``kubelet_values`` are as those of an instance type.
    """

    ami_id: str
    reservation_id: str
    efa_count: int
    kubelet_values: str


class FleetRequest(Struct, kw_only=True):
    """A launch group, its node class, its NodeClaims in order of uid, and its AllocationStrategy for spot instances."""

    group: str
    cluster: ClusterInfo
    node_class: EC2NodeClass
    claims: Sequence[NodeClaim]
    spot_strategy: str = PRICE_CAPACITY_OPTIMIZED

    def launch_templates(self, plan: FleetPlan) -> dict[TemplateKey, LaunchTemplate]:
        """The launch templates of the plan's overrides; they may not exist yet.

        Raises:
            UserDataError: the class's user data can't be merged.
        """
        family = family_of(self.node_class, version=self._version())
        keys = sorted({self._template_key(o) for o in plan.overrides})
        user_data = {values: self._user_data(family, values) for values in {key.kubelet_values for key in keys}}
        return {
            key: launch_template.launch_template(
                self.node_class,
                family,
                cluster=self.cluster.name,
                ami_id=key.ami_id,
                user_data=user_data[key.kubelet_values],
                tags=self._tags(),
                spot=plan.capacity_type == labels.SPOT,
                reservation_id=key.reservation_id,
                efa_count=key.efa_count,
                ipv6=self.cluster.is_ipv6,
            )
            for key in keys
        }

    def _version(self) -> str:
        """The Kubernetes version of the images."""
        if not is_version_held(self.node_class):
            return self.cluster.version
        return images_version(self.node_class, self.cluster.version)

    def within_limit(self, plan: FleetPlan) -> FleetPlan:
        """The plan with the cheapest overrides, as many as EC2 takes in one call, and of as many launch templates."""
        tags = [tag for kind in self._tag_specifications(self.claims) for tag in kind["Tags"]]
        tags_size = sum(_TAG + len(quote(tag["Key"])) + len(quote(str(tag["Value"]))) for tag in tags)
        keys = dict.fromkeys(self._template_key(o) for o in plan.overrides)
        first = set(list(keys)[:_MAX_TEMPLATES])
        overrides = tuple(o for o in plan.overrides if self._template_key(o) in first)
        return with_fields(plan, overrides=overrides[: max((_MAX_REQUEST - tags_size) // _OVERRIDE, 1)])

    def _user_data(self, family: Family, kubelet_values: str) -> str:
        spec, first = self.node_class.spec, self.claims[0]
        return render_user_data(
            family,
            Bootstrap(
                cluster=self.cluster,
                labels=self._common_labels(),
                taints=(*first.spec.taints, *first.spec.startup_taints, UNREGISTERED),
                kubelet=with_values(spec.kubelet, kubelet_values) if kubelet_values else spec.kubelet,
                user_data=spec.user_data,
                raid=spec.instance_store_policy == RAID0,
            ),
        )

    def parameters(
        self,
        plan: FleetPlan,
        claims: Sequence[NodeClaim],
        templates: Mapping[TemplateKey, LaunchTemplate],
        *,
        step: str,
    ) -> dict[str, Any]:
        """The parameters of CreateFleet for one instance for each of the claims.

        The ClientToken is the same for each attempt at the ``step`` of the group, whichever of its claims remain.
        """
        reservation_kind, priorities = plan.reservation_kind, plan.priorities or (None,) * len(plan.overrides)
        overrides = [(self._template_key(o), _override(o, p)) for o, p in zip(plan.overrides, priorities, strict=True)]
        parameters: dict[str, Any] = {
            "Type": "instant",
            "ClientToken": self._client_token(step),
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": template.name, "Version": "$Latest"},
                    "Overrides": [override for template_key, override in overrides if template_key == key],
                }
                for key, template in templates.items()
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": len(claims),
                "DefaultTargetCapacityType": _target_capacity_type(plan.capacity_type, reservation_kind),
            },
            "TagSpecifications": self._tag_specifications(claims),
            **_allocation_options(
                plan.capacity_type,
                reservation_kind=reservation_kind,
                prioritized=bool(plan.priorities),
                spot_strategy=self.spot_strategy,
            ),
        }
        if self.node_class.spec.context:
            parameters["Context"] = self.node_class.spec.context
        return parameters

    def _tag_specifications(self, claims: Sequence[NodeClaim]) -> list[dict[str, Any]]:
        """The tags of the fleet, and of its instances and volumes: a single claim's are set at the launch."""
        tags = {**self._tags(), labels.LAUNCH_GROUP: self.group}
        instance_tags = tags | (self.nodeclaim_tags(claims[0]) if len(claims) == 1 else {})
        tags_of = {"fleet": tags, "instance": instance_tags, "volume": instance_tags}
        return [{"ResourceType": kind, "Tags": launch_template.tag_list(own)} for kind, own in tags_of.items()]

    def nodeclaim_tags(self, claim: NodeClaim) -> dict[str, str]:
        """The tags of the NodeClaim's instance; a Name tag of the node class is kept."""
        name_tag = {} if "Name" in self.node_class.spec.tags else {"Name": claim.name}
        return {labels.NODECLAIM_TAG: claim.name, **name_tag}

    def _template_key(self, override: Override) -> TemplateKey:
        requests_efa = EFA in self.claims[0].spec.resources.requests
        efa_count = override.instance_type.capacity.get(EFA, 0) if requests_efa else 0
        reservation_id = override.offering.labels.get(RESERVATION_ID, "")
        return TemplateKey(override.ami.id, reservation_id, efa_count, override.instance_type.kubelet_values)

    def _tags(self) -> dict[str, str]:
        return {
            **self.node_class.spec.tags,
            labels.CLUSTER_TAG.format(cluster=self.cluster.name): "owned",
            labels.CLUSTER_NAME_TAG: self.cluster.name,
            labels.NODEPOOL: self.claims[0].metadata.labels.get(labels.NODEPOOL, ""),
            labels.NODECLASS: self.node_class.name,
        }

    def _common_labels(self) -> dict[str, str]:
        """The labels that all NodeClaims of the group have: the nodes of the template register with them."""
        first, *rest = [claim.metadata.labels for claim in self.claims]
        return {
            key: value
            for key, value in first.items()
            if key != labels.HOSTNAME and all(other_labels.get(key) == value for other_labels in rest)
        }

    def _client_token(self, step: str) -> str:
        text = f"{self.cluster.name}/{self.group}/{step}"
        return hashlib.sha256(text.encode()).hexdigest()[:_CLIENT_TOKEN_LENGTH]


def fleet_request(group: str, cluster: ClusterInfo, requests: Sequence[LaunchRequest]) -> FleetRequest:
    """The request of a launch group's NodeClaims, in order of uid; they have one node class and the same options."""
    node_class = requests[0].node_class
    assert isinstance(node_class, EC2NodeClass)  # the requests are this cloud's
    return FleetRequest(
        group=group,
        cluster=cluster,
        node_class=node_class,
        claims=[r.claim for r in requests],
        spot_strategy=requests[0].spot_options.allocation_strategy,
    )


def _override(override: Override, priority: int | None) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "InstanceType": override.instance_type.name,
        "SubnetId": override.subnet.id,
        "AvailabilityZone": override.offering.zone,
    }
    return parameters if priority is None else {**parameters, "Priority": float(priority)}


def _target_capacity_type(capacity_type: str, reservation_kind: str = "") -> str:
    """DefaultTargetCapacityType of the CreateFleet call; reserved instances are on-demand ones to EC2.

    Those of interruptible reservations and capacity blocks are not (AWS: "Launch instances into an Interruptible
    Capacity Reservation" and "Tutorial: Configure your EC2 Fleet to launch instances into Capacity Blocks", EC2 User
    Guide).
    """
    if reservation_kind:
        return "reserved-capacity" if reservation_kind == INTERRUPTIBLE else reservation_kind
    return "spot" if capacity_type == labels.SPOT else "on-demand"


def _allocation_options(
    capacity_type: str,
    *,
    reservation_kind: str = "",
    prioritized: bool = False,
    spot_strategy: str = PRICE_CAPACITY_OPTIMIZED,
) -> dict[str, Any]:
    """SpotOptions, OnDemandOptions or ReservedCapacityOptions of the CreateFleet call: how EC2 chooses an override.

    The strategies are Karpenter's. EC2 knows nothing of NodeOverlays: where they set a price, it chooses by priorities.
    ``prioritized``: the overrides have priorities, which EC2 follows for on-demand instances, and for spot instances by
    best effort after capacity. Else ``spot_strategy`` is that of spot instances.
    """
    if reservation_kind == INTERRUPTIBLE:
        return {"ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE]}}
    if reservation_kind:
        return {}  # a capacity block is the only override: nothing is left to choose
    if capacity_type == labels.SPOT:
        return {
            "SpotOptions": {"AllocationStrategy": "capacity-optimized-prioritized" if prioritized else spot_strategy}
        }
    return {"OnDemandOptions": {"AllocationStrategy": "prioritized" if prioritized else "lowest-price"}}
