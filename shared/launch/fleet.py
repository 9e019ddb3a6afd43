"""Claims become instances: one CreateFleet call for all claims of a launch group, and its instances dealt back to them.

Everything here can die after any call and be run again. The call's ClientToken follows from the group, so EC2 answers a
replay with the instances it launched before. If the replay asks for something else (prices moved, or some claims are
done already), EC2 says so, and the instances are found by the group's tag instead. An instance belongs to the claim
that its ``karpenter.sh/nodeclaim`` tag names.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from shared import aws
from shared.api import labels
from shared.instances.family import family_of, is_legacy
from shared.launch import instances, refusal, subnets
from shared.launch import template as templates
from shared.launch.bootstrap import UNREGISTERED, Bootstrap, UserDataError
from shared.launch.plan import Choice, Plan, offering_labels, plan
from shared.launch.userdata import render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.api.quantity import Resources
    from shared.cluster.info import ClusterInfo
    from shared.instances.offering import InstanceType
    from shared.instances.unavailable import OfferingKey
    from shared.launch.budget import Budget
    from shared.launch.instances import Instance

RAID0 = "RAID0"
_TOKEN_LENGTH = 40


@dataclass(frozen=True, kw_only=True)
class LaunchRequest:
    """A claim to launch. The class's status is resolved; the types are cheapest first, offerings as available now."""

    claim: NodeClaim
    node_class: EC2NodeClass
    instance_types: tuple[InstanceType, ...]


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A claim's instance. ``price`` is USD per hour; ``labels`` are those of its type and offering.

    ``unavailable`` are offerings that had no capacity although the launch went well elsewhere: as in :class:`Failed`.
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


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A claim that got no instance. ``reason`` is CamelCase, ``message`` one sentence for a person.

    ``kind``: *capacity* — plan its pods again without the ``unavailable`` offerings (capacity type, instance type,
    zone); *configuration* — a person must change something; *throttled* — try the same claim again later; *gone* —
    what its class resolved to isn't there any more, look again.
    """

    claim_name: str
    kind: refusal.Kind
    reason: str
    message: str
    unavailable: tuple[OfferingKey, ...] = ()


Result = Launched | Failed


def launch(
    requests: Sequence[LaunchRequest],
    *,
    cluster: ClusterInfo,
    now: datetime,
    budget: Budget | None = None,
) -> tuple[Result, ...]:
    """Launch the claims: one answer each, in the order of the requests. Makes at most one CreateFleet call a group.

    More calls are made only where a template is gone, or where EC2 says that a replay differs from the first try.
    ``budget`` is asked before each call; without it, none is counted.
    """
    groups: defaultdict[str, list[LaunchRequest]] = defaultdict(list)
    for request in requests:
        groups[_group_of(request.claim)].append(request)
    promised: Counter[str] = Counter()
    results: dict[str, Result] = {}
    for name, members in groups.items():
        group = _Group(name, tuple(sorted(members, key=lambda r: r.claim.metadata.uid)), cluster, promised, budget, now)
        results |= {result.claim_name: result for result in group.launch()}
    return tuple(results[r.claim.name] for r in requests)


def _group_of(claim: NodeClaim) -> str:
    return claim.metadata.annotations.get(labels.LAUNCH_GROUP) or claim.metadata.uid or claim.name


class _RefusedError(Exception):
    """EC2 refused a whole call, or our budget did; carries its code and what it said."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class _Answer:
    """What one CreateFleet call came to: instance ids with their choice, and the offerings that failed, with why."""

    launched: tuple[tuple[str, Choice], ...] = ()
    errors: tuple[tuple[str, str, tuple[OfferingKey, ...]], ...] = ()

    @property
    def template_gone(self) -> bool:
        return not self.launched and any(code in refusal.TEMPLATE_GONE for code, _, _ in self.errors)


@dataclass
class _Group:
    """Claims that ask for the same, and how they get it."""

    name: str
    requests: tuple[LaunchRequest, ...]
    cluster: ClusterInfo
    promised: Counter[str]
    budget: Budget | None
    now: datetime

    @property
    def first(self) -> LaunchRequest:
        return self.requests[0]

    @property
    def node_class(self) -> EC2NodeClass:
        return self.first.node_class

    def launch(self) -> list[Result]:
        try:
            return self._launch()
        except _RefusedError as error:
            return self._all_failed(error.code, error.message)
        except UserDataError as error:
            return self._all_failed("InvalidUserData", str(error))
        except ClientError as error:
            return self._all_failed(_code(error), error.response["Error"].get("Message", ""))
        except BotoCoreError as error:
            return [self._failed(r.claim, "throttled", "Unreachable", str(error)) for r in self.requests]

    def _launch(self) -> list[Result]:
        status = self.node_class.status
        best = subnets.best(subnets.refreshed(aws.ec2(), status.subnets), self.promised)
        wanted = plan(self.first.instance_types, self.first.claim.spec.requirements, images=status.amis, subnets=best)
        if wanted is None:
            return [
                self._failed(
                    r.claim,
                    "capacity",
                    "NoCompatibleOffering",
                    "no instance type that the claim may be has an available offering in a zone of the class's subnets",
                )
                for r in self.requests
            ]
        try:
            answer = self._create(wanted, [r.claim for r in self.requests], step="first")
        except _RefusedError as error:
            if error.code != refusal.MISMATCH:
                raise
            return self._recover(wanted)
        return self._deal(wanted, answer, self.requests)

    def _recover(self, wanted: Plan) -> list[Result]:
        """The group was asked for before, otherwise: deal what that launched, and launch only what is missing."""
        found = instances.of_launch_groups(self.cluster.name, [self.name])
        by_claim = {i.tags[labels.NODECLAIM_TAG]: i for i in found if labels.NODECLAIM_TAG in i.tags}
        free = [i for i in found if labels.NODECLAIM_TAG not in i.tags]
        results: list[Result] = []
        missing: list[LaunchRequest] = []
        for request in self.requests:
            instance = by_claim.get(request.claim.name) or (free.pop(0) if free else None)
            if instance is None:
                missing.append(request)
            else:
                results.append(self._take(request, instance))
        if missing:
            uids = ",".join(r.claim.metadata.uid for r in missing)
            answer = self._create(wanted, [r.claim for r in missing], step=uids)
            results += self._deal(wanted, answer, missing)
        return results

    def _create(self, wanted: Plan, claims: Sequence[NodeClaim], *, step: str) -> _Answer:
        for subnet_id, count in self._promises(wanted, len(claims)).items():
            self.promised[subnet_id] += count
        made = self._templates(wanted)
        answer = self._try(wanted, claims, made, step)
        if answer.template_gone:
            templates.forget([t.name for t in made.values()])
            made = self._templates(wanted)
            answer = self._try(wanted, claims, made, f"{step}/template made again")
        return answer

    def _promises(self, wanted: Plan, count: int) -> dict[str, int]:
        return dict.fromkeys((choice.subnet.id for choice in wanted.choices), count)

    def _templates(self, wanted: Plan) -> dict[str, templates.Template]:
        """By image: the launch template, made if it wasn't there."""
        spec = self.node_class.spec
        family = family_of(spec, legacy=is_legacy(self.node_class.kind), version=self.cluster.version)
        user_data = render(
            family,
            Bootstrap(
                cluster=self.cluster,
                labels=self._common_labels(),
                taints=(*self.first.claim.spec.taints, *self.first.claim.spec.startup_taints, UNREGISTERED),
                kubelet=spec.kubelet,
                user_data=spec.user_data,
                raid=spec.instance_store_policy == RAID0,
            ),
        )
        made = {}
        for image_id in sorted({choice.image.id for choice in wanted.choices}):
            made[image_id] = templates.template(
                self.node_class,
                family,
                cluster=self.cluster.name,
                image_id=image_id,
                user_data=user_data,
                tags=self._tags(),
                spot=wanted.capacity_type == labels.SPOT,
            )
            templates.ensure(aws.ec2(), made[image_id], cluster=self.cluster.name)
        return made

    def _common_labels(self) -> dict[str, str]:
        """Labels that all claims of the group carry: one that only some have would be wrong on the others."""
        first, *others = [r.claim.metadata.labels for r in self.requests]
        return {
            key: value
            for key, value in first.items()
            if key != labels.HOSTNAME and all(other.get(key) == value for other in others)
        }

    def _tags(self) -> dict[str, str]:
        return {
            **self.node_class.spec.tags,
            labels.CLUSTER_TAG.format(cluster=self.cluster.name): "owned",
            labels.CLUSTER_NAME_TAG: self.cluster.name,
            labels.NODEPOOL: self.first.claim.metadata.labels.get(labels.NODEPOOL, ""),
            labels.NODECLASS: self.node_class.name,
        }

    def _try(
        self, wanted: Plan, claims: Sequence[NodeClaim], made: Mapping[str, templates.Template], step: str
    ) -> _Answer:
        if self.budget is not None and not self.budget.take(now=self.now):
            raise _RefusedError("RequestLimitExceeded", "the cluster's own budget for CreateFleet calls is spent")
        try:
            answer = aws.fleet().create_fleet(**self._call(wanted, claims, made, step))
        except ClientError as error:
            if _code(error) in refusal.TEMPLATE_GONE:
                return _Answer(errors=((_code(error), str(error), ()),))
            raise _RefusedError(_code(error), error.response["Error"].get("Message", "")) from error
        return _read(answer, wanted)

    def _call(
        self, wanted: Plan, claims: Sequence[NodeClaim], made: Mapping[str, templates.Template], step: str
    ) -> dict[str, Any]:
        spot = wanted.capacity_type == labels.SPOT
        tags = {**self._tags(), labels.LAUNCH_GROUP: self.name}
        instance_tags = tags | (self._dealt_tags(claims[0]) if len(claims) == 1 else {})
        strategy = {"AllocationStrategy": "price-capacity-optimized" if spot else "lowest-price"}
        call: dict[str, Any] = {
            "Type": "instant",
            "ClientToken": self._token(wanted.capacity_type, step),
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateName": made[image_id].name, "Version": "$Latest"},
                    "Overrides": [_override(c) for c in wanted.choices if c.image.id == image_id],
                }
                for image_id in made
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
            "SpotOptions" if spot else "OnDemandOptions": strategy,
        }
        if self.node_class.spec.context:
            call["Context"] = self.node_class.spec.context
        if wanted.capacity_type == labels.RESERVED:
            strategy["CapacityReservationOptions"] = {"UsageStrategy": "use-capacity-reservations-first"}  # type: ignore[assignment]  # the option is a structure
        return call

    def _token(self, capacity_type: str, step: str) -> str:
        """The same for each try of the group, whichever of its claims are still waiting."""
        text = f"{self.cluster.name}/{self.name}/{capacity_type}/{step}"
        return hashlib.sha256(text.encode()).hexdigest()[:_TOKEN_LENGTH]

    def _deal(self, wanted: Plan, answer: _Answer, requests: Sequence[LaunchRequest]) -> list[Result]:
        """Instances in order of id to claims in order of uid; claims beyond them failed."""
        lacking = tuple(sorted({key for _, _, keys in answer.errors for key in keys}))
        results: list[Result] = []
        dealt = sorted(answer.launched, key=lambda pair: pair[0])[: len(requests)]
        single = len(requests) == 1
        for request, (instance_id, choice) in zip(requests, dealt, strict=False):
            result = self._hand_over(request, instance_id, choice, choice.image.id, tagged=single)
            results.append(replace(result, unavailable=lacking) if isinstance(result, Launched) else result)
        return results + [self._unfilled(r.claim, answer, wanted, lacking) for r in requests[len(dealt) :]]

    def _take(self, request: LaunchRequest, instance: Instance) -> Result:
        """Deal an instance that was found by its tags."""
        choice = _choice_of(request, instance)
        if choice is None:
            return self._failed(
                request.claim,
                "gone",
                "InstanceTypeUnknown",
                f"instance {instance.id} is a {instance.type} in {instance.zone}, which the claim can't be",
            )
        tagged = instance.tags.get(labels.NODECLAIM_TAG) == request.claim.name
        return self._hand_over(request, instance.id, choice, instance.image_id, tagged=tagged)

    def _hand_over(
        self, request: LaunchRequest, instance_id: str, choice: Choice, image_id: str, *, tagged: bool
    ) -> Result:
        if not tagged:
            try:
                tags = templates.tag_list(self._dealt_tags(request.claim))
                aws.ec2().create_tags(Resources=[instance_id], Tags=tags)
            except ClientError as error:
                message = f"instance {instance_id} can't be tagged: {error.response['Error'].get('Message', '')}"
                kind = refusal.kind(_code(error))
                return self._failed(request.claim, "throttled" if kind == "capacity" else kind, _code(error), message)
        offering, instance_type = choice.offering, choice.instance_type
        return Launched(
            claim_name=request.claim.name,
            instance_id=instance_id,
            provider_id=instances.provider_id(offering.zone, instance_id),
            instance_type=instance_type.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            image_id=image_id,
            price=offering.price,
            capacity=dict(instance_type.capacity),
            allocatable=dict(instance_type.allocatable),
            labels=offering_labels(instance_type, offering),
        )

    def _dealt_tags(self, claim: NodeClaim) -> dict[str, str]:
        own_name = {} if "Name" in self.node_class.spec.tags else {"Name": claim.name}
        return {labels.NODECLAIM_TAG: claim.name, **own_name}

    def _unfilled(self, claim: NodeClaim, answer: _Answer, wanted: Plan, lacking: tuple[OfferingKey, ...]) -> Failed:
        """Why the call filled fewer than asked: the first error that is not about capacity, else capacity."""
        for code, message, _ in answer.errors:
            if (kind := refusal.kind(code)) != "capacity":
                return self._failed(claim, kind, code, refusal.advice(code, message))
        if not answer.launched and not lacking:
            lacking = tuple(sorted({_key(c) for c in wanted.choices}))
        code, message, _ = answer.errors[0] if answer.errors else ("UnfulfillableCapacity", "", ())
        said = f": {refusal.advice(code, message)}" if message else ""
        text = f"EC2 has no {wanted.capacity_type} capacity for {_some(lacking)}{said}"
        return self._failed(claim, "capacity", code, text, lacking)

    def _all_failed(self, code: str, message: str) -> list[Result]:
        kind = refusal.kind(code)
        lacking: tuple[OfferingKey, ...] = ()
        if kind == "capacity":
            lacking = tuple(
                sorted({(o.capacity_type, t.name, o.zone) for t in self.first.instance_types for o in t.offerings})
            )
        return [self._failed(r.claim, kind, code, refusal.advice(code, message), lacking) for r in self.requests]

    @staticmethod
    def _failed(
        claim: NodeClaim, kind: refusal.Kind, reason: str, message: str, unavailable: tuple[OfferingKey, ...] = ()
    ) -> Failed:
        plain = "".join(c for c in reason.rpartition(".")[2] if c.isalnum()) or "LaunchFailed"
        return Failed(claim_name=claim.name, kind=kind, reason=plain, message=message, unavailable=unavailable)


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _key(choice: Choice) -> OfferingKey:
    return (choice.offering.capacity_type, choice.instance_type.name, choice.offering.zone)


def _some(keys: Sequence[OfferingKey]) -> str:
    shown = [f"{instance_type} in {zone}" for _, instance_type, zone in keys[:3]]
    return ", ".join(shown) + (f" and {len(keys) - len(shown)} more" if len(keys) > len(shown) else "")


def _override(choice: Choice) -> dict[str, Any]:
    return {
        "InstanceType": choice.instance_type.name,
        "SubnetId": choice.subnet.id,
        "AvailabilityZone": choice.offering.zone,
    }


def _choice_of(request: LaunchRequest, instance: Instance) -> Choice | None:
    """The type and offering of an instance, as the request knows them."""
    for instance_type in request.instance_types:
        for offering in instance_type.offerings if instance_type.name == instance.type else ():
            if offering.zone == instance.zone and offering.capacity_type == instance.capacity_type:
                image = next((i for i in request.node_class.status.amis if i.id == instance.image_id), None)
                subnet = subnets.Subnet(instance.subnet_id, instance.zone, "", 0)
                return Choice(
                    instance_type=instance_type,
                    offering=offering,
                    subnet=subnet,
                    image=image or request.node_class.status.amis[0],
                )
    return None


def _read(answer: Mapping[str, Any], wanted: Plan) -> _Answer:
    """EC2's answer in terms of the plan."""
    by_subnet = {(c.instance_type.name, c.subnet.id): c for c in wanted.choices}

    def asked(entry: Mapping[str, Any]) -> list[Choice]:
        override = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        name = override.get("InstanceType", entry.get("InstanceType", ""))
        subnet, zone = override.get("SubnetId", ""), override.get("AvailabilityZone", "")
        exact = by_subnet.get((name, subnet))
        if exact is not None:
            return [exact]
        return [
            c
            for c in wanted.choices
            if (not name or c.instance_type.name == name)
            and (not zone or c.offering.zone == zone)
            and (not subnet or c.subnet.id == subnet)
        ]

    launched = tuple(
        (instance_id, choices[0])
        for entry in answer.get("Instances", [])
        if (choices := asked(entry))
        for instance_id in entry.get("InstanceIds", [])
    )
    errors = tuple(
        (entry.get("ErrorCode", ""), entry.get("ErrorMessage", ""), _lacking(entry, asked(entry), wanted))
        for entry in answer.get("Errors", [])
    )
    return _Answer(launched=launched, errors=errors)


def _lacking(entry: Mapping[str, Any], asked: Iterable[Choice], wanted: Plan) -> tuple[OfferingKey, ...]:
    """The offerings that an error speaks of; a full subnet speaks for everything in its zone."""
    code = entry.get("ErrorCode", "")
    if refusal.kind(code) != "capacity":
        return ()
    named = tuple(asked)
    if code == "InsufficientFreeAddressesInSubnet":
        full = {c.subnet.id for c in named}
        named = tuple(c for c in wanted.choices if c.subnet.id in full)
    return tuple(_key(c) for c in named)
