"""How a group of claims is asked for: its launch templates, its tags, and the CreateFleet call itself.

Nothing in a template is of one claim; what tells the claims of a group apart is dealt out afterwards.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shared import aws
from shared.ami_family.bootstrap import UNREGISTERED, Bootstrap
from shared.ami_family.families import family_of, is_legacy
from shared.ami_family.user_data import render
from shared.api import labels
from shared.instance_types.allocatable import EFA
from shared.instance_types.offerings import RESERVATION_ID
from shared.launch import launch_template as templates

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.cluster.connect import ClusterInfo
    from shared.launch.fleet.overrides import Choice, Plan
    from shared.launch.launch_template import Template

RAID0 = "RAID0"
_TOKEN_LENGTH = 40

Boot = tuple[str, str, int]
"""What an instance boots with: its image, the capacity reservation it runs in ("" for none), and how many EFAs."""


@dataclass(frozen=True, kw_only=True)
class Asking:
    """A launch group, its class, and its claims in order of uid."""

    group: str
    cluster: ClusterInfo
    node_class: EC2NodeClass
    claims: Sequence[NodeClaim]

    def templates(self, wanted: Plan) -> dict[Boot, Template]:
        """The launch template of each boot, made if it wasn't there.

        Raises:
            UserDataError: the class's user data can't be merged.
            ClientError: EC2 refused a template.
        """
        spec = self.node_class.spec
        family = family_of(spec, legacy=is_legacy(self.node_class.kind), version=self.cluster.version)
        first = self.claims[0]
        boot = Bootstrap(
            cluster=self.cluster,
            labels=self._common_labels(),
            taints=(*first.spec.taints, *first.spec.startup_taints, UNREGISTERED),
            kubelet=spec.kubelet,
            user_data=spec.user_data,
            raid=spec.instance_store_policy == RAID0,
        )
        user_data = render(family, boot)
        made = {}
        for image_id, reservation_id, fabric in sorted({self._boot(choice) for choice in wanted.choices}):
            made[image_id, reservation_id, fabric] = templates.template(
                self.node_class,
                family,
                cluster=self.cluster.name,
                image_id=image_id,
                user_data=user_data,
                tags=self._tags(),
                spot=wanted.capacity_type == labels.SPOT,
                reservation_id=reservation_id,
                fabric=fabric,
            )
        for template in made.values():
            templates.ensure(aws.ec2(), template, cluster=self.cluster.name)
        return made

    def call(
        self, wanted: Plan, claims: Sequence[NodeClaim], made: Mapping[Boot, Template], *, step: str
    ) -> dict[str, Any]:
        """The parameters of CreateFleet for as many instances as claims.

        The ClientToken is the same for each try of the ``step`` of the group, whichever of its claims still wait.
        """
        spot = wanted.capacity_type == labels.SPOT
        tags = {**self._tags(), labels.LAUNCH_GROUP: self.group}
        instance_tags = tags | (self.dealt_tags(claims[0]) if len(claims) == 1 else {})
        call: dict[str, Any] = {
            "Type": "instant",
            "ClientToken": self._token(step),
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": template.name, "Version": "$Latest"},
                    "Overrides": [_override(c) for c in wanted.choices if self._boot(c) == boot],
                }
                for boot, template in made.items()
            ],
            "TargetCapacitySpecification": {
                "TotalTargetCapacity": len(claims),
                "DefaultTargetCapacityType": "spot" if spot else "on-demand",
            },
            "TagSpecifications": [
                {"ResourceType": "fleet", "Tags": templates.tag_list(tags)},
                {"ResourceType": "instance", "Tags": templates.tag_list(instance_tags)},
                {"ResourceType": "volume", "Tags": templates.tag_list(instance_tags)},
            ],
        }
        if spot:
            call["SpotOptions"] = {"AllocationStrategy": "price-capacity-optimized"}
        else:
            call["OnDemandOptions"] = {"AllocationStrategy": "lowest-price"}
        if self.node_class.spec.context:
            call["Context"] = self.node_class.spec.context
        return call

    def dealt_tags(self, claim: NodeClaim) -> dict[str, str]:
        """What an instance is tagged with once it belongs to the claim; a Name of the class's own stays."""
        own_name = {} if "Name" in self.node_class.spec.tags else {"Name": claim.name}
        return {labels.NODECLAIM_TAG: claim.name, **own_name}

    def _boot(self, choice: Choice) -> Boot:
        wants_fabric = EFA in self.claims[0].spec.resources.requests
        fabric = choice.instance_type.capacity.get(EFA, 0) if wants_fabric else 0
        return choice.image.id, choice.offering.labels.get(RESERVATION_ID, ""), fabric

    def _tags(self) -> dict[str, str]:
        return {
            **self.node_class.spec.tags,
            labels.CLUSTER_TAG.format(cluster=self.cluster.name): "owned",
            labels.CLUSTER_NAME_TAG: self.cluster.name,
            labels.NODEPOOL: self.claims[0].metadata.labels.get(labels.NODEPOOL, ""),
            labels.NODECLASS: self.node_class.name,
        }

    def _common_labels(self) -> dict[str, str]:
        """Labels that all claims of the group carry: one that only some have would be wrong on the others."""
        first, *others = [claim.metadata.labels for claim in self.claims]
        return {
            key: value
            for key, value in first.items()
            if key != labels.HOSTNAME and all(other.get(key) == value for other in others)
        }

    def _token(self, step: str) -> str:
        text = f"{self.cluster.name}/{self.group}/{step}"
        return hashlib.sha256(text.encode()).hexdigest()[:_TOKEN_LENGTH]


def _override(choice: Choice) -> dict[str, Any]:
    return {
        "InstanceType": choice.instance_type.name,
        "SubnetId": choice.subnet.id,
        "AvailabilityZone": choice.offering.zone,
    }
