"""CreateFleet ``instant`` as EC2 does it: the caller's overrides, tokens, capacity and errors are honoured.

moto's own takes the first override, forgets the token and never fails. Here pools are chosen by the allocation
strategy, what a pool lacks is answered as an error beside what was launched, and the same token gives the same answer
again.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import convert_tag_spec, random_fleet_id

from local.aws import backends

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.aws.capacity_pools import CapacityPools, Pool
    from local.aws.capacity_reservations import Reservations
    from local.aws.prices import Prices

SPOT, ON_DEMAND = "spot", "on-demand"
MAX_OVERRIDES = 300
"""Overrides in one request of type instant; EC2's quota is 300 launch specifications."""
_DEPTH_WEIGHT = 0.15
"""How much a shallow pool's price counts more under price-capacity-optimized; AWS doesn't publish its own."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One override with its template: a pool that could be used."""

    order: int
    instance_type: str
    subnet_id: str
    zone: str
    priority: float
    max_price: float | None
    image_id: str
    reservation_id: str
    template: Any
    echo: Mapping[str, Any]

    def pool(self, capacity_type: str) -> Pool:
        """The pool whose capacity it would use."""
        return capacity_type, self.instance_type, self.zone


@dataclass(frozen=True, kw_only=True)
class FleetCall:
    """One CreateFleet as it was answered: for the demo's timeline and for tests."""

    token: str
    capacity_type: str
    target_capacity: int
    instance_ids: tuple[str, ...]
    errors: tuple[tuple[str, str, str], ...]
    replayed: bool = False


class Fleets:
    """Serves CreateFleet over moto's EC2 backend."""

    def __init__(
        self,
        *,
        backend: Any,  # noqa: ANN401 - moto's EC2 backend
        prices: Prices,
        capacity: CapacityPools,
        reservations: Reservations,
        launched: Callable[[Any], None],
    ) -> None:
        self._backend = backend
        self._prices = prices
        self._capacity = capacity
        self._reservations = reservations
        self._launched = launched
        self._answers: dict[str, tuple[str, dict[str, Any]]] = {}
        self._architectures: dict[str, str] = {}
        self.calls: list[FleetCall] = []

    def create(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request, whose parameters are EC2's by name.

        Raises:
            EC2ClientError: as EC2 refuses the whole request: a token used otherwise, a malformed configuration.
        """
        token = str(params.get("ClientToken") or "")
        fingerprint = json.dumps(
            {name: value for name, value in params.items() if name != "ClientToken"}, sort_keys=True, default=str
        )
        if token in self._answers:
            before, answer = self._answers[token]
            if before != fingerprint:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "The client token you have provided is associated with a request whose parameters differ",
                )
            self._note(token, answer, params, replayed=True)
            return answer
        answer = self._create(params)
        if token:
            self._answers[token] = (fingerprint, answer)
        self._note(token, answer, params, replayed=False)
        return answer

    def _create(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if params.get("Type") != "instant":
            raise EC2ClientError("InvalidParameterValue", "only fleets of type instant are answered here")
        target = params["TargetCapacitySpecification"]
        capacity_type = str(target.get("DefaultTargetCapacityType") or ON_DEMAND)
        candidates = self._candidates(params.get("LaunchTemplateConfigs") or [])
        options = params.get("SpotOptions" if capacity_type == SPOT else "OnDemandOptions") or {}
        tags = convert_tag_spec(params.get("TagSpecifications") or [])
        ordered = self._ordered(candidates, capacity_type, str(options.get("AllocationStrategy") or "lowest-price"))
        instances: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        missing = int(target["TotalTargetCapacity"])
        for candidate in ordered:
            if not missing:
                break
            problem = self._problem(candidate, capacity_type)
            granted = 0 if problem else self._granted(candidate, capacity_type, missing)
            if granted:
                instances.append(self._run(candidate, granted, capacity_type, tags))
                missing -= granted
            if missing:
                errors.append(_refused(candidate, capacity_type, *(problem or _exhausted(candidate, capacity_type))))
        # Without any pool that could be tried, EC2 still says what it was asked for.
        return {"FleetId": random_fleet_id(), "Instances": instances, "Errors": errors}

    def _granted(self, candidate: Candidate, capacity_type: str, wanted: int) -> int:
        """How many of so many there are: of the reservation that the template targets, else of the pool."""
        if not candidate.reservation_id:
            return self._capacity.take(candidate.pool(capacity_type), wanted)
        room = self._reservations.room(candidate.reservation_id, candidate.instance_type, candidate.zone)
        return min(wanted, room)

    def _candidates(self, configs: Sequence[Mapping[str, Any]]) -> list[Candidate]:
        found: list[Candidate] = []
        for config in configs:
            wanted = config["LaunchTemplateSpecification"]
            if wanted.get("LaunchTemplateId"):
                template = self._backend.get_launch_template(wanted["LaunchTemplateId"])
            else:
                template = self._backend.get_launch_template_by_name(wanted["LaunchTemplateName"])
            version = template.get_version(wanted.get("Version") or "$Default")
            specification = {"LaunchTemplateId": template.id, "Version": str(version.number)}
            for override in config.get("Overrides") or [{}]:
                merged = {**version.data, **override}
                if not merged.get("InstanceType") or not merged.get("SubnetId"):
                    raise EC2ClientError(
                        "InvalidFleetConfig", "every override needs an instance type and a subnet here"
                    )
                price = override.get("MaxPrice")
                found.append(
                    Candidate(
                        order=len(found),
                        instance_type=str(merged["InstanceType"]),
                        subnet_id=str(merged["SubnetId"]),
                        zone=str(self._backend.get_subnet(merged["SubnetId"]).availability_zone),
                        priority=float(override.get("Priority") or 0),
                        max_price=None if price is None else float(price),
                        image_id=str(merged["ImageId"]),
                        reservation_id=_targeted(version.data),
                        template=version,
                        echo={"LaunchTemplateSpecification": specification, "Overrides": dict(override)},
                    )
                )
        if len(found) > MAX_OVERRIDES:
            raise EC2ClientError(
                "InvalidFleetConfig", f"{len(found)} overrides, and at most {MAX_OVERRIDES} are allowed"
            )
        pools = Counter((candidate.instance_type, candidate.zone) for candidate in found)
        twice, times = next(iter(pools.most_common(1)), (("", ""), 0))
        if times > 1:
            raise EC2ClientError(
                "InvalidFleetConfig",
                f"Duplicate instance pools specified in the Launch Template Overrides: {twice[0]} in {twice[1]}",
            )
        return found

    def _ordered(self, candidates: list[Candidate], capacity_type: str, strategy: str) -> list[Candidate]:
        def price(candidate: Candidate) -> float:
            try:
                if capacity_type == SPOT:
                    return self._prices.spot(candidate.instance_type, candidate.zone)
                return self._prices.on_demand(candidate.instance_type)
            except KeyError:
                return 0.0  # no such type: tried first, so that it is answered with an error

        def rank(candidate: Candidate) -> tuple[float, ...]:
            shallow = 1 - self._capacity.depth(candidate.pool(capacity_type))
            if strategy == "prioritized":
                return candidate.priority, candidate.order
            if strategy == "price-capacity-optimized":
                return price(candidate) * (1 + _DEPTH_WEIGHT * shallow), candidate.order
            if strategy == "capacity-optimized":
                return shallow, candidate.order
            if strategy == "capacity-optimized-prioritized":
                return candidate.priority, shallow, candidate.order
            return price(candidate), candidate.order

        return sorted(candidates, key=rank)

    def _problem(self, candidate: Candidate, capacity_type: str) -> tuple[str, str] | None:
        try:
            price = self._prices.spot(candidate.instance_type, candidate.zone)
        except KeyError:
            return "InvalidParameterValue", f"Invalid value '{candidate.instance_type}' for InstanceType."
        profile = (candidate.template.data.get("IamInstanceProfile") or {}).get("Name")
        if profile and profile not in self._profiles():
            said = f"Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile"
            return "InvalidParameterValue", f"{said} name"
        architecture = self._architecture(candidate.image_id)
        architectures = _facts(candidate.instance_type)["ProcessorInfo"]["SupportedArchitectures"]
        if architecture and architecture not in architectures:
            said = f"The architecture '{','.join(architectures)}' of the specified instance type does not match "
            return "InvalidParameterValue", f"{said}the architecture '{architecture}' of the specified AMI."
        if capacity_type == SPOT and candidate.max_price is not None and candidate.max_price < price:
            return "SpotMaxPriceTooLow", f"Your Spot request price of {candidate.max_price} is lower than {price}."
        return None

    def _architecture(self, image_id: str) -> str:
        """The image's, looked up once; "" for an image that isn't there."""
        if image_id not in self._architectures:
            images = self._backend.describe_images(ami_ids=[image_id])
            self._architectures[image_id] = str(images[0].architecture) if images else ""
        return self._architectures[image_id]

    def _profiles(self) -> set[str]:
        return {profile.name for profile in backends.iam().instance_profiles.values()}

    def _run(
        self, candidate: Candidate, count: int, capacity_type: str, tags: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Any]:
        data = candidate.template.data
        of_template = convert_tag_spec(data.get("TagSpecifications") or [])
        profile = data.get("IamInstanceProfile") or {}
        interfaces = data.get("NetworkInterfaces") or []
        groups = data.get("SecurityGroupIds") or [group for nic in interfaces for group in nic.get("Groups", [])]
        reservation = self._backend.run_instances(
            candidate.image_id,
            count,
            data.get("UserData"),
            [],
            instance_type=candidate.instance_type,
            is_instance_type_default=False,
            region_name=self._backend.region_name,
            subnet_id=candidate.subnet_id,
            security_group_ids=list(groups),
            block_device_mappings=[
                device for device in data.get("BlockDeviceMappings") or [] if device.get("Ebs", {}).get("VolumeSize")
            ],
            metadata_options=data.get("MetadataOptions") or {},
            monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
            lifecycle=SPOT if capacity_type == SPOT else None,
            tags={kind: {**of_template.get(kind, {}), **tags.get(kind, {})} for kind in ("instance", "volume")},
        )
        fabric = sum(nic.get("InterfaceType") in {"efa", "efa-only"} for nic in interfaces)
        for instance in reservation.instances:
            instance.efa_interfaces = fabric
            instance.capacity_reservation_id = candidate.reservation_id or None
            instance.add_tags(
                {
                    "aws:ec2launchtemplate:id": candidate.template.template.id,
                    "aws:ec2launchtemplate:version": str(candidate.template.number),
                }
            )
            if profile:
                self._backend.associate_iam_instance_profile(
                    instance_id=instance.id,
                    iam_instance_profile_name=profile.get("Name"),
                    iam_instance_profile_arn=profile.get("Arn"),
                )
            self._launched(instance)
        if candidate.reservation_id:
            self._reservations.use(candidate.reservation_id, [instance.id for instance in reservation.instances])
        return {
            "LaunchTemplateAndOverrides": candidate.echo,
            "Lifecycle": capacity_type,
            "InstanceIds": [instance.id for instance in reservation.instances],
            "InstanceType": candidate.instance_type,
        }

    def _note(self, token: str, answer: Mapping[str, Any], params: Mapping[str, Any], *, replayed: bool) -> None:
        target = params["TargetCapacitySpecification"]
        self.calls.append(
            FleetCall(
                token=token,
                capacity_type=str(target.get("DefaultTargetCapacityType") or ON_DEMAND),
                target_capacity=int(target["TotalTargetCapacity"]),
                instance_ids=tuple(id_ for group in answer["Instances"] for id_ in group["InstanceIds"]),
                errors=tuple((error["ErrorCode"], *error["_pool"]) for error in answer["Errors"]),
                replayed=replayed,
            )
        )


def _facts(instance_type: str) -> dict[str, Any]:
    from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415 - large: only when instances are launched

    facts: dict[str, Any] = INSTANCE_TYPES[instance_type]
    return facts


def _targeted(template: Mapping[str, Any]) -> str:
    """The capacity reservation that a template's data names; "" for none."""
    target = (template.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return str(target.get("CapacityReservationId") or "")


def _exhausted(candidate: Candidate, capacity_type: str) -> tuple[str, str]:
    zone, kind = candidate.zone, candidate.instance_type
    if candidate.reservation_id:
        return "ReservationCapacityExceeded", f"The reservation {candidate.reservation_id} has no free instance."
    if capacity_type == SPOT:
        return (
            "UnfulfillableCapacity",
            f"Unable to fulfill capacity due to your request configuration: {kind} in {zone}.",
        )
    said = f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). "
    return "InsufficientInstanceCapacity", f"{said}Our system will be working on provisioning additional capacity."


def _refused(candidate: Candidate, capacity_type: str, code: str, message: str) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": candidate.echo,
        "Lifecycle": capacity_type,
        "ErrorCode": code,
        "ErrorMessage": message,
        "_pool": (candidate.instance_type, candidate.zone),
    }
