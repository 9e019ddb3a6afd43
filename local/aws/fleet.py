"""CreateFleet of type ``instant``, with overrides, allocation strategies, client tokens, capacity and errors.

moto's CreateFleet uses the first override, ignores the token and never fails. Here capacity pools are chosen by the
allocation strategy, pools without capacity give errors in addition to the launched instances, and a token repeats its
response.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.utils import convert_tag_spec, random_fleet_id

from local.aws import backends
from local.aws.capacity_reservations import CAPACITY_BLOCK
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from local.aws.capacity_pools import CapacityPools, Pool
    from local.aws.capacity_reservations import CapacityReservations
    from local.aws.prices import Prices

SPOT, ON_DEMAND = "spot", "on-demand"
MAX_OVERRIDES = 300
"""Overrides in one request of type instant; EC2's quota is 300 launch specifications."""
_DEPTH_WEIGHT = 0.15
"""How much price-capacity-optimized raises the price of a pool without depth; AWS doesn't publish its formula."""


class Candidate(Struct, kw_only=True):
    """One override with its launch template: a capacity pool that can be used."""

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
        """Its capacity pool."""
        return capacity_type, self.instance_type, self.zone


class FleetCall(Struct, kw_only=True):
    """One CreateFleet call and its result."""

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
        backend: Any,
        prices: Prices,
        capacity: CapacityPools,
        reservations: CapacityReservations,
        launched: Callable[[Any], None],
    ) -> None:
        self._backend = backend
        self._prices = prices
        self._capacity = capacity
        self._reservations = reservations
        self._launched = launched
        self._responses: dict[str, tuple[str, dict[str, Any]]] = {}
        self.calls: list[FleetCall] = []

    def create(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The response to a request with EC2's parameters.

        Raises:
            EC2ClientError: EC2 refuses the request: a token with other parameters, a malformed configuration.
        """
        token = str(params.get("ClientToken") or "")
        fingerprint = json.dumps(
            {name: value for name, value in params.items() if name != "ClientToken"}, sort_keys=True, default=str
        )
        if token in self._responses:
            previous, response = self._responses[token]
            if previous != fingerprint:
                raise EC2ClientError(
                    "IdempotentParameterMismatch",
                    "The client token you have provided is associated with a request whose parameters differ",
                )
            self._record(token, response, params, replayed=True)
            return response
        response = self.launch(params)
        if token:
            self._responses[token] = (fingerprint, response)
        self._record(token, response, params, replayed=False)
        return response

    def launch(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Launch as :meth:`create` for a service of AWS: the fleet isn't among the calls of the account's callers.

        Raises:
            EC2ClientError: as :meth:`create`.
        """
        if params.get("Type") != "instant":
            raise EC2ClientError("InvalidParameterValue", "only fleets of type instant are supported here")
        target = params["TargetCapacitySpecification"]
        capacity_type = _capacity_type(target)
        candidates = self._candidates(params.get("LaunchTemplateConfigs") or [])
        options = params.get("SpotOptions" if capacity_type == SPOT else "OnDemandOptions") or {}
        tags = convert_tag_spec(params.get("TagSpecifications") or [])
        self._check_blocks(candidates, str(target.get("DefaultTargetCapacityType") or ""))
        ordered = self._ordered(candidates, capacity_type, str(options.get("AllocationStrategy") or "lowest-price"))
        instances: list[dict[str, Any]] = []
        errors: list[dict[str, Any]] = []
        remaining = int(target["TotalTargetCapacity"])
        for candidate in ordered:
            if not remaining:
                break
            problem = self._unusable(candidate, capacity_type) or self._invalid(candidate, capacity_type)
            granted = 0 if problem else self._take_capacity(candidate, capacity_type, remaining)
            if granted:
                instances.append(self._run(candidate, granted, capacity_type, tags))
                remaining -= granted
            if remaining:
                errors.append(
                    _error(candidate, capacity_type, *(problem or _insufficient_capacity(candidate, capacity_type)))
                )
        return {"FleetId": random_fleet_id(), "Instances": instances, "Errors": errors}

    def _check_blocks(self, candidates: Sequence[Candidate], target: str) -> None:
        """Refuse a capacity block next to other overrides, or without its market type in fleet and launch template."""
        blocks = [c for c in candidates if self._reservations.is_block(c.reservation_id)]
        markets = {(c.template.data.get("InstanceMarketOptions") or {}).get("MarketType") for c in candidates}
        if (blocks or target == CAPACITY_BLOCK or CAPACITY_BLOCK in markets) and not (
            len(blocks) == len(candidates) == 1 and target == CAPACITY_BLOCK and markets == {CAPACITY_BLOCK}
        ):
            raise EC2ClientError(
                "InvalidFleetConfig",
                "a fleet for a capacity block has one override, of the market type capacity-block, and no other",
            )

    def _take_capacity(self, candidate: Candidate, capacity_type: str, wanted: int) -> int:
        """Take up to that many instances from the targeted reservation, else from the pool; returns how many."""
        if not candidate.reservation_id:
            return self._capacity.take(candidate.pool(capacity_type), wanted)
        free = self._reservations.free(candidate.reservation_id, candidate.instance_type, candidate.zone)
        return min(wanted, free)

    def _candidates(self, configs: Sequence[Mapping[str, Any]]) -> list[Candidate]:
        candidates: list[Candidate] = []
        for config in configs:
            requested = config["LaunchTemplateSpecification"]
            if requested.get("LaunchTemplateId"):
                template = self._backend.get_launch_template(requested["LaunchTemplateId"])
            else:
                template = self._backend.get_launch_template_by_name(requested["LaunchTemplateName"])
            version = template.get_version(requested.get("Version") or "$Default")
            specification = {"LaunchTemplateId": template.id, "Version": str(version.number)}
            for override in config.get("Overrides") or [{}]:
                merged = {**version.data, **override}
                if not merged.get("InstanceType") or not merged.get("SubnetId"):
                    raise EC2ClientError(
                        "InvalidFleetConfig", "every override needs an instance type and a subnet here"
                    )
                price = override.get("MaxPrice")
                candidates.append(
                    Candidate(
                        order=len(candidates),
                        instance_type=str(merged["InstanceType"]),
                        subnet_id=str(merged["SubnetId"]),
                        zone=str(self._backend.get_subnet(merged["SubnetId"]).availability_zone),
                        priority=float(override.get("Priority") or 0),
                        max_price=None if price is None else float(price),
                        image_id=str(merged["ImageId"]),
                        reservation_id=_target_reservation(version.data),
                        template=version,
                        echo={"LaunchTemplateSpecification": specification, "Overrides": dict(override)},
                    )
                )
        _check_pools(candidates)
        return candidates

    def _ordered(self, candidates: list[Candidate], capacity_type: str, strategy: str) -> list[Candidate]:
        def price(candidate: Candidate) -> float:
            try:
                if capacity_type == SPOT:
                    return self._prices.spot(candidate.instance_type, candidate.zone)
                return self._prices.on_demand(candidate.instance_type)
            except KeyError:
                return 0.0  # no such type: tried first, so that it gives an error

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

    def _unusable(self, candidate: Candidate, capacity_type: str) -> tuple[str, str] | None:
        """Why nothing is launched from the pool or reservation, whatever the request asks for (code, message)."""
        if error := self._capacity.error(candidate.pool(capacity_type)):
            return error
        reservation = candidate.reservation_id
        if reservation and not self._reservations.is_active(reservation):
            return (
                "InvalidCapacityReservationState.Unavailable",
                f"The capacity reservation {reservation} is not active.",
            )
        return None

    def _invalid(self, candidate: Candidate, capacity_type: str) -> tuple[str, str] | None:
        try:
            price = self._prices.spot(candidate.instance_type, candidate.zone)
        except KeyError:
            return "InvalidParameterValue", f"Invalid value '{candidate.instance_type}' for InstanceType."
        profile = (candidate.template.data.get("IamInstanceProfile") or {}).get("Name")
        if profile and profile not in self._profiles():
            text = f"Value ({profile}) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile"
            return "InvalidParameterValue", f"{text} name"
        image = self._backend.amis.get(candidate.image_id)
        type_info = _type_info(candidate.instance_type)
        architectures = type_info["ProcessorInfo"]["SupportedArchitectures"]
        if image is None or image.architecture not in architectures:
            return _wrong_image(candidate.image_id, image, architectures)
        if _has_enclaves(candidate.template.data) and type_info.get("NitroEnclavesSupport") != "supported":
            text = "The requested configuration is currently not supported: Nitro Enclaves can't be enabled on"
            return "Unsupported", f"{text} {candidate.instance_type}."
        if capacity_type == SPOT and candidate.max_price is not None and candidate.max_price < price:
            return "SpotMaxPriceTooLow", f"Your Spot request price of {candidate.max_price} is lower than {price}."
        return None

    def _profiles(self) -> set[str]:
        return {profile.name for profile in backends.iam().instance_profiles.values()}

    def _run(
        self, candidate: Candidate, count: int, capacity_type: str, tags: Mapping[str, Mapping[str, str]]
    ) -> dict[str, Any]:
        data = candidate.template.data
        template_tags = convert_tag_spec(data.get("TagSpecifications") or [])
        reservation = self._backend.run_instances(
            candidate.image_id,
            count,
            data.get("UserData"),
            [],
            instance_type=candidate.instance_type,
            is_instance_type_default=False,
            region_name=self._backend.region_name,
            subnet_id=candidate.subnet_id,
            security_group_ids=_security_groups(data),
            block_device_mappings=[
                device for device in data.get("BlockDeviceMappings") or [] if device.get("Ebs", {}).get("VolumeSize")
            ],
            metadata_options=data.get("MetadataOptions") or {},
            monitoring_state="enabled" if (data.get("Monitoring") or {}).get("Enabled") else "disabled",
            lifecycle=SPOT if capacity_type == SPOT else None,
            tags={kind: {**template_tags.get(kind, {}), **tags.get(kind, {})} for kind in ("instance", "volume")},
        )
        for instance in reservation.instances:
            self._complete(instance, candidate)
        instance_ids = [instance.id for instance in reservation.instances]
        if candidate.reservation_id:
            self._reservations.use(candidate.reservation_id, reservation.instances)
        return {
            "LaunchTemplateAndOverrides": candidate.echo,
            "Lifecycle": capacity_type,
            "InstanceIds": instance_ids,
            "InstanceType": candidate.instance_type,
        }

    def _complete(self, instance: Any, candidate: Candidate) -> None:
        """Set what moto's RunInstances doesn't take from a launch template."""
        data = candidate.template.data
        interfaces = data.get("NetworkInterfaces") or []
        instance.efa_interfaces = sum(nic.get("InterfaceType") in {"efa", "efa-only"} for nic in interfaces)
        instance.enclave_enabled = _has_enclaves(data)
        instance.capacity_reservation_id = candidate.reservation_id or None
        instance.add_tags(
            {
                "aws:ec2launchtemplate:id": candidate.template.template.id,
                "aws:ec2launchtemplate:version": str(candidate.template.number),
            }
        )
        if profile := data.get("IamInstanceProfile"):
            self._backend.associate_iam_instance_profile(
                instance_id=instance.id,
                iam_instance_profile_name=profile.get("Name"),
                iam_instance_profile_arn=profile.get("Arn"),
            )
        self._launched(instance)

    def _record(self, token: str, response: Mapping[str, Any], params: Mapping[str, Any], *, replayed: bool) -> None:
        target = params["TargetCapacitySpecification"]
        self.calls.append(
            FleetCall(
                token=token,
                capacity_type=_capacity_type(target),
                target_capacity=int(target["TotalTargetCapacity"]),
                instance_ids=tuple(id_ for group in response["Instances"] for id_ in group["InstanceIds"]),
                errors=tuple((error["ErrorCode"], *error["_pool"]) for error in response["Errors"]),
                replayed=replayed,
            )
        )


def _check_pools(candidates: Sequence[Candidate]) -> None:
    """Refuse too many overrides, and two of one pool."""
    if len(candidates) > MAX_OVERRIDES:
        raise EC2ClientError(
            "InvalidFleetConfig", f"{len(candidates)} overrides, and at most {MAX_OVERRIDES} are allowed"
        )
    pools = Counter((candidate.instance_type, candidate.zone) for candidate in candidates)
    pool, count = next(iter(pools.most_common(1)), (("", ""), 0))
    if count > 1:
        raise EC2ClientError(
            "InvalidFleetConfig",
            f"Duplicate instance pools specified in the Launch Template Overrides: {pool[0]} in {pool[1]}",
        )


def _security_groups(data: Mapping[str, Any]) -> list[str]:
    groups = data.get("SecurityGroupIds")
    if groups:
        return list(groups)
    return [group for interface in data.get("NetworkInterfaces") or [] for group in interface.get("Groups", [])]


def _wrong_image(image_id: str, image: Any | None, architectures: Sequence[str]) -> tuple[str, str]:
    if image is None:
        return "InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist"
    text = f"The architecture '{','.join(architectures)}' of the specified instance type does not match "
    return "InvalidParameterValue", f"{text}the architecture '{image.architecture}' of the specified AMI."


def _has_enclaves(template: Mapping[str, Any]) -> bool:
    """Whether the template's data enables Nitro Enclaves."""
    return bool((template.get("EnclaveOptions") or {}).get("Enabled"))


def _type_info(instance_type: str) -> dict[str, Any]:
    from moto.ec2.models.instance_types import INSTANCE_TYPES

    type_info: dict[str, Any] = INSTANCE_TYPES[instance_type]
    return type_info


def _capacity_type(target: Mapping[str, Any]) -> str:
    """Spot, or on-demand for reserved capacity too: its instances have no lifecycle of their own."""
    return SPOT if target.get("DefaultTargetCapacityType") == SPOT else ON_DEMAND


def _target_reservation(template: Mapping[str, Any]) -> str:
    """The capacity reservation that a template's data names; "" for none."""
    target = (template.get("CapacityReservationSpecification") or {}).get("CapacityReservationTarget") or {}
    return str(target.get("CapacityReservationId") or "")


def _insufficient_capacity(candidate: Candidate, capacity_type: str) -> tuple[str, str]:
    zone, kind = candidate.zone, candidate.instance_type
    if candidate.reservation_id:
        return "ReservationCapacityExceeded", f"The reservation {candidate.reservation_id} has no free instance."
    if capacity_type == SPOT:
        return (
            "UnfulfillableCapacity",
            f"Unable to fulfill capacity due to your request configuration: {kind} in {zone}.",
        )
    text = f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested ({zone}). "
    return "InsufficientInstanceCapacity", f"{text}Our system will be working on provisioning additional capacity."


def _error(candidate: Candidate, capacity_type: str, code: str, message: str) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": candidate.echo,
        "Lifecycle": capacity_type,
        "ErrorCode": code,
        "ErrorMessage": message,
        "_pool": (candidate.instance_type, candidate.zone),
    }
