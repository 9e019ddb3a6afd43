"""Claims become instances: one CreateFleet call for all claims of a launch group, and its instances dealt back to them.

Everything here can die after any call and be run again. The call's ClientToken follows from the group, so EC2 answers a
replay with the instances it launched before. If the replay asks for something else (prices moved, or some claims are
done already), EC2 says so, and the instances are found by the group's tag instead. An instance belongs to the claim
that its ``karpenter.sh/nodeclaim`` tag names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from shared import aws, runtime
from shared.ami_family.bootstrap import UserDataError
from shared.api import labels, nodeclaim
from shared.api.meta import EventReason, condition
from shared.api.nodeclass import ResolvedAMI
from shared.cloud_provider import LaunchedInstance, LaunchFailure, provider_id
from shared.launch import instances
from shared.launch import launch_template as templates
from shared.launch.fleet import errors
from shared.launch.fleet.overrides import Choice, Plan, offering_labels, plan
from shared.launch.fleet.request import Asking
from shared.launch.fleet.response import Answer, Refusal, key, read
from shared.launch.node_class import subnets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from shared.api.nodeclaim import NodeClaim
    from shared.api.nodeclass import EC2NodeClass
    from shared.cloud_provider import FailureKind, Instance, LaunchRequest, LaunchResult
    from shared.cluster.connect import ClusterInfo
    from shared.instance_types.instance_type import OfferingKey
    from shared.launch.fleet.rate_limit import Budget
    from shared.launch.fleet.request import Boot


_TOKENS = 4
PATIENCE = timedelta(seconds=10)
"""How long launches wait for the call budget in one run: twenty calls beyond its burst. The rest waits in the queue."""


def launch(
    requests: Sequence[LaunchRequest],
    *,
    cluster: ClusterInfo,
    now: datetime,
    budget: Budget | None = None,
) -> tuple[LaunchResult, ...]:
    """Launch the claims: one answer each, in the order of the requests. Makes at most one CreateFleet call a group.

    More calls are made only where a template is gone, where EC2 says that a replay differs from the first try, or
    where there is no capacity of one kind (reserved, spot) and the claims allow the next: one call for each kind then.
    ``budget`` is asked before each call, and waited for until :data:`PATIENCE` after ``now``; claims that it has no
    call for are *throttled*. Without it, no call is counted.
    """
    groups: defaultdict[str, list[LaunchRequest]] = defaultdict(list)
    for request in requests:
        groups[_group_of(request.claim)].append(request)
    promised: Counter[str] = Counter()
    results: dict[str, LaunchResult] = {}
    for name, members in groups.items():
        group = _Group(
            name, tuple(sorted(members, key=lambda r: r.claim.metadata.uid)), cluster, promised, budget, now + PATIENCE
        )
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


@dataclass
class _Group:
    """Claims that ask for the same, and how they get it."""

    name: str
    requests: tuple[LaunchRequest, ...]
    cluster: ClusterInfo
    promised: Counter[str]
    budget: Budget | None
    deadline: datetime
    wanted: Plan | None = None
    """What is asked for, once it is known."""

    @property
    def first(self) -> LaunchRequest:
        return self.requests[0]

    @property
    def node_class(self) -> EC2NodeClass:
        return self.first.node_class

    @property
    def _asking(self) -> Asking:
        claims = [r.claim for r in self.requests]
        return Asking(group=self.name, cluster=self.cluster, node_class=self.node_class, claims=claims)

    def launch(self) -> list[LaunchResult]:
        try:
            return self._launch()
        except _RefusedError as error:
            return self._all_failed(error.code, error.message, self.requests)
        except UserDataError as error:
            return self._all_failed(EventReason("InvalidUserData"), str(error), self.requests)
        except ClientError as error:
            return self._all_failed(_code(error), error.response["Error"].get("Message", ""), self.requests)
        except BotoCoreError as error:
            return [self._failed(r.claim, "throttled", "Unreachable", str(error)) for r in self.requests]

    def _launch(self) -> list[LaunchResult]:
        status = self.node_class.status
        best = subnets.best(subnets.refreshed(aws.ec2(), status.subnets), self.promised)
        types, requirements = self.first.instance_types, self.first.claim.spec.requirements
        wanted = plan(types, requirements, images=status.amis, subnets=best)
        self.wanted = wanted
        if wanted is None or self._failed_before():
            return self._recover(wanted, again=self._minute)
        try:
            answer = self._create(wanted, [r.claim for r in self.requests], step="first")
        except _RefusedError as error:
            if error.code != errors.MISMATCH:
                raise
            return self._recover(wanted)
        if answer.transient:
            # EC2 keeps this answer for the token, so asking with it again would never launch anything.
            return self._recover(wanted, again=self._minute)
        results = self._deal(wanted, answer, self.requests)
        tried: Plan | None = wanted
        while tried is not None and _without(results, tried):
            later = plan(types, requirements, images=status.amis, subnets=best, after=tried.capacity_type)
            results = self._fall_back(later, results, tried.capacity_type) if later is not None else results
            tried = later
        return results

    def _fall_back(self, wanted: Plan, results: list[LaunchResult], tried: str) -> list[LaunchResult]:
        """Ask for the claims that got nothing once more, by the next capacity type that they allow.

        All their types had none in any zone, so planning again would only find dearer ones of the same kind.
        """
        lacking = {r.claim_name: r for r in results if isinstance(r, LaunchFailure) and r.kind == "capacity"}
        requests = [r for r in self.requests if r.claim.name in lacking]
        uids = ",".join(r.claim.metadata.uid for r in requests)
        try:
            answer = self._create(wanted, [r.claim for r in requests], step=f"{uids}/instead of {tried}")
        except _RefusedError as error:
            # Nothing is lost: either the instances are there, or the claims' pods are planned again.
            return self._recover(wanted) if error.code == errors.MISMATCH else results
        again = {r.claim_name: r for r in self._deal(wanted, answer, requests)}
        return [
            replace(new, unavailable=tuple(sorted({*new.unavailable, *lacking[new.claim_name].unavailable})))
            if (new := again.get(old.claim_name)) is not None
            else old
            for old in results
        ]

    def _failed_before(self) -> bool:
        """Whether a person was told to mend something: EC2 would repeat that answer for the same token."""
        conditions = [condition(r.claim.status.conditions, nodeclaim.LAUNCHED) for r in self.requests]
        return any(c is not None and c.status == "False" for c in conditions)

    @property
    def _minute(self) -> str:
        return f"{self.deadline:%Y-%m-%dT%H:%M}"

    def _recover(self, wanted: Plan | None, *, again: str = "") -> list[LaunchResult]:
        """The group may have been launched before: deal what is there by its tag, and launch only what is missing.

        ``again`` makes the tokens of a later try differ from those of an earlier one, whose answers EC2 repeats.
        """
        found = instances.list_by_launch_group(self.cluster.name, [self.name])
        by_claim = {i.tags[labels.NODECLAIM_TAG]: i for i in found if labels.NODECLAIM_TAG in i.tags}
        free = [i for i in found if labels.NODECLAIM_TAG not in i.tags]
        results: list[LaunchResult] = []
        missing: list[LaunchRequest] = []
        for request in self.requests:
            instance = by_claim.get(request.claim.name) or (free.pop(0) if free else None)
            if instance is None:
                missing.append(request)
            else:
                results.append(self._take(request, instance))
        if not missing:
            return results
        if wanted is None:
            text = "no instance type that the claim may be has an available offering in a zone of the class's subnets"
            return results + [
                self._failed(r.claim, "capacity", EventReason("NoCompatibleOffering"), text) for r in missing
            ]
        try:
            return results + self._deal(wanted, self._create_missing(wanted, missing, again), missing)
        except _RefusedError as error:
            return results + self._all_failed(error.code, error.message, missing)

    def _create_missing(self, wanted: Plan, missing: Sequence[LaunchRequest], again: str) -> Answer:
        """As many as are missing. A token that was used before launched nothing that is still there: take the next."""
        uids = ",".join(r.claim.metadata.uid for r in missing)
        for attempt in range(_TOKENS):
            try:
                return self._create(wanted, [r.claim for r in missing], step=f"{uids}/{again}/{attempt}")
            except _RefusedError as error:
                if error.code != errors.MISMATCH:
                    raise
        raise _RefusedError("PriorRequestNotComplete", "the claim was asked for in several ways just now")

    def _create(self, wanted: Plan, claims: Sequence[NodeClaim], *, step: str) -> Answer:
        for subnet_id, count in self._promises(wanted, len(claims)).items():
            self.promised[subnet_id] += count
        made = self._asking.templates(wanted)
        answer = self._try(wanted, claims, made, step)
        if answer.template_gone:
            templates.forget([t.name for t in made.values()])
            made = self._asking.templates(wanted)
            answer = self._try(wanted, claims, made, f"{step}/template made again")
        return answer

    def _promises(self, wanted: Plan, count: int) -> dict[str, int]:
        return dict.fromkeys((choice.subnet.id for choice in wanted.choices), count)

    def _try(
        self, wanted: Plan, claims: Sequence[NodeClaim], made: Mapping[Boot, templates.Template], step: str
    ) -> Answer:
        if self.budget is not None and not self._may_call(self.budget):
            raise _RefusedError("RequestLimitExceeded", "the cluster's own budget for CreateFleet calls is spent")
        try:
            answer = aws.ec2_without_retries().create_fleet(**self._asking.call(wanted, claims, made, step=step))
        except ClientError as error:
            if _code(error) in errors.TEMPLATE_GONE:
                return Answer(refusals=(Refusal(_code(error), str(error)),))
            if self.budget is not None and errors.kind(_code(error)) == "throttled":
                self.budget.refused(now=runtime.current().now())
            raise _RefusedError(_code(error), error.response["Error"].get("Message", "")) from error
        return read(answer, wanted)

    def _may_call(self, budget: Budget) -> bool:
        process = runtime.current()
        return budget.take_by(self.deadline, now=process.now, sleep=process.sleep)

    def _deal(self, wanted: Plan, answer: Answer, requests: Sequence[LaunchRequest]) -> list[LaunchResult]:
        """Instances in order of id to claims in order of uid; claims beyond them failed."""
        lacking = answer.lacking
        results: list[LaunchResult] = []
        dealt = sorted(answer.launched, key=lambda pair: pair[0])[: len(requests)]
        single = len(requests) == 1
        for request, (instance_id, choice) in zip(requests, dealt, strict=False):
            result = self._hand_over(request, instance_id, choice, choice.image.id, tagged=single)
            results.append(replace(result, unavailable=lacking) if isinstance(result, LaunchedInstance) else result)
        return results + [self._unfilled(r.claim, answer, wanted, lacking) for r in requests[len(dealt) :]]

    def _take(self, request: LaunchRequest, instance: Instance) -> LaunchResult:
        """Deal an instance that was found by its tags."""
        choice = _choice_of(request, instance)
        if choice is None:
            return self._failed(
                request.claim,
                "gone",
                EventReason("InstanceTypeUnknown"),
                f"instance {instance.id} is a {instance.type} in {instance.zone}, which the claim can't be",
            )
        tagged = instance.tags.get(labels.NODECLAIM_TAG) == request.claim.name
        return self._hand_over(request, instance.id, choice, instance.image_id, tagged=tagged)

    def _hand_over(
        self, request: LaunchRequest, instance_id: str, choice: Choice, image_id: str, *, tagged: bool
    ) -> LaunchResult:
        if not tagged:
            try:
                tags = templates.tag_list(self._asking.dealt_tags(request.claim))
                aws.ec2().create_tags(Resources=[instance_id], Tags=tags)
            except ClientError as error:
                message = f"instance {instance_id} can't be tagged: {error.response['Error'].get('Message', '')}"
                kind = errors.kind(_code(error))
                return self._failed(request.claim, "throttled" if kind == "capacity" else kind, _code(error), message)
        offering, instance_type = choice.offering, choice.instance_type
        return LaunchedInstance(
            claim_name=request.claim.name,
            instance_id=instance_id,
            provider_id=provider_id(offering.zone, instance_id),
            instance_type=instance_type.name,
            zone=offering.zone,
            capacity_type=offering.capacity_type,
            image_id=image_id,
            price=offering.price,
            capacity=dict(instance_type.capacity),
            allocatable=dict(instance_type.allocatable),
            labels=offering_labels(instance_type, offering),
        )

    def _unfilled(
        self, claim: NodeClaim, answer: Answer, wanted: Plan, lacking: tuple[OfferingKey, ...]
    ) -> LaunchFailure:
        """Why the call filled fewer than asked: the first error that is not about capacity, else capacity."""
        for refused in answer.refusals:
            if (kind := errors.kind(refused.code)) != "capacity":
                return self._failed(claim, kind, refused.code, errors.advice(refused.code, refused.message))
        if not answer.launched and not lacking:
            lacking = tuple(sorted({key(c) for c in wanted.choices}))
        refused = answer.refusals[0] if answer.refusals else Refusal("UnfulfillableCapacity", "")
        said = f": {errors.advice(refused.code, refused.message)}" if refused.message else ""
        text = f"EC2 has no {wanted.capacity_type} capacity for {_some(lacking)}{said}"
        return self._failed(claim, "capacity", refused.code, text, lacking)

    def _all_failed(self, code: str, message: str, requests: Sequence[LaunchRequest]) -> list[LaunchResult]:
        kind = errors.kind(code)
        lacking: tuple[OfferingKey, ...] = ()
        if kind == "capacity" and self.wanted is not None:
            lacking = tuple(sorted({key(choice) for choice in self.wanted.choices}))
        return [self._failed(r.claim, kind, code, errors.advice(code, message), lacking) for r in requests]

    @staticmethod
    def _failed(
        claim: NodeClaim, kind: FailureKind, reason: str, message: str, unavailable: tuple[OfferingKey, ...] = ()
    ) -> LaunchFailure:
        plain = "".join(c for c in reason.rpartition(".")[2] if c.isalnum()) or EventReason("LaunchFailed")
        return LaunchFailure(claim_name=claim.name, kind=kind, reason=plain, message=message, unavailable=unavailable)


def _without(results: Sequence[LaunchResult], tried: Plan) -> bool:
    """Whether claims got nothing, and every offering that was asked for is shown to have no capacity."""
    shown = {o for r in results if isinstance(r, LaunchFailure) and r.kind == "capacity" for o in r.unavailable}
    return bool(shown) and shown >= {key(choice) for choice in tried.choices}


def _code(error: ClientError) -> str:
    return error.response.get("Error", {}).get("Code", "")


def _some(keys: Sequence[OfferingKey]) -> str:
    shown = [f"{instance_type} in {zone}" for _, instance_type, zone in keys[:3]]
    return ", ".join(shown) + (f" and {len(keys) - len(shown)} more" if len(keys) > len(shown) else "")


def _choice_of(request: LaunchRequest, instance: Instance) -> Choice | None:
    """The type and offering of an instance, as the request knows them.

    An open capacity reservation may have taken in an on-demand instance, so the capacity type is only a preference.
    """
    known = [
        (t, o)
        for t in request.instance_types
        for o in t.offerings
        if t.name == instance.type and o.zone == instance.zone
    ]
    if not known:
        return None
    instance_type, offering = min(known, key=lambda pair: pair[1].capacity_type != instance.capacity_type)
    images = request.node_class.status.amis
    image = next((i for i in images if i.id == instance.image_id), ResolvedAMI(id=instance.image_id))
    subnet = subnets.Subnet(instance.subnet_id, instance.zone, "", 0)
    return Choice(instance_type=instance_type, offering=offering, subnet=subnet, image=image)
