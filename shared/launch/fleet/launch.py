"""Launches NodeClaims: one CreateFleet call for all NodeClaims of a launch group, several groups at once.

The first call for spot instances offers EC2 only the pools of nearly the least expected price. NodeClaims for which
these have no capacity are launched at once by a second call, from every pool that their requirements allow.

A run can die after any call, and the next run repeats it. The call's ClientToken follows from the group, so EC2 answers
a repeated call with the instances that it launched before. If the repeated request differs (prices changed, or some
NodeClaims have their instance), EC2 answers IdempotentParameterMismatch, and the instances are listed by the group's
tag. Such a list may be incomplete, so an instance is launched again only if the list shows that the first one ended, or
if it shows as many instances as EC2 has launched for the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from shared.ami_family.bootstrap import UserDataError
from shared.api import labels, nodeclaim
from shared.api.meta import EventReason, condition
from shared.api.spot import CAPACITY_OPTIMIZED
from shared.base.aws import error_code
from shared.base.runtime import in_threads
from shared.base.struct import MutableStruct, Struct
from shared.cloud_provider import LaunchedInstance
from shared.launch import instances
from shared.launch.fleet import errors
from shared.launch.fleet.create_fleet import (
    CreateFleetError,
    FleetCalls,
    FleetResponse,
    assign_existing,
    assign_response,
    failure,
    in_order_of_launch,
)
from shared.launch.fleet.errors import (
    INSTANCE_TERMINATED,
    USED_TOKEN,
    capacity_failures,
    is_plan_exhausted,
    with_retried,
)
from shared.launch.fleet.overrides import narrowed, plan_fleet, without_unavailable
from shared.launch.fleet.request import fleet_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from mypy_boto3_dynamodb import DynamoDBClient

    from shared.api.nodeclaim import NodeClaim
    from shared.base.runtime import Runtime
    from shared.cloud_provider import Instance, LaunchRequest, LaunchResult
    from shared.cluster.connect import ClusterInfo
    from shared.instance_types.instance_type import OfferingKey
    from shared.instance_types.interruption_rates import Pool
    from shared.launch.clients import LaunchClients
    from shared.launch.fleet.overrides import FleetPlan
    from shared.launch.fleet.rate_limit import RateLimiter
    from shared.launch.fleet.request import FleetRequest
    from shared.launch.node_class.subnets import Subnet

RATE_LIMIT_WAIT_TIMEOUT = timedelta(seconds=10)
"""How long the launches of one run wait for the rate limit: twenty calls beyond its burst. The rest is retried."""
_MAX_CLIENT_TOKENS = 4
_PARTIAL_LAUNCH_TTL = timedelta(hours=1)
"""Longer than the time-out of an unconfirmed launch."""
_PARTIAL_LAUNCHES = "partial-launch"


class PartialLaunches(Struct):
    """How many instances EC2 launched for groups for which it launched fewer than requested: kept for an hour.

    A run that dies after CreateFleet's answer may have written some of its results. The next run's request differs
    then, so EC2 doesn't repeat the answer, and an instance that EC2 doesn't show may exist. The number tells that it
    doesn't. Losing it only costs time: the NodeClaim stays unconfirmed until its registration time-out.
    Every method raises ClientError if DynamoDB failed.
    """

    dynamodb: DynamoDBClient
    table: str

    def remember(self, group: str, *, instances: int, now: datetime) -> None:
        """Store that EC2 launched that many instances for the group, and no more."""
        self.dynamodb.put_item(
            TableName=self.table,
            Item={
                "pk": {"S": _PARTIAL_LAUNCHES},
                "sk": {"S": group},
                "instances": {"N": str(instances)},
                "expires": {"N": str(int((now + _PARTIAL_LAUNCH_TTL).timestamp()))},
            },
        )

    def instances(self, group: str, *, now: datetime) -> int | None:
        """How many instances EC2 launched for the group; None if it launched all, or nothing is stored."""
        key = {"pk": {"S": _PARTIAL_LAUNCHES}, "sk": {"S": group}}
        item = self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        if item is None or int(item["expires"]["N"]) <= now.timestamp():
            return None
        return int(item["instances"]["N"])


def launch(
    requests: Sequence[LaunchRequest],
    *,
    clients: LaunchClients,
    runtime: Runtime,
    cluster: ClusterInfo,
    now: datetime,
    recorded: Callable[[], Mapping[str, str]],
    rate_limiter: RateLimiter | None = None,
    interruption_rates: Mapping[Pool, float] | None = None,
    partial_launches: PartialLaunches | None = None,
) -> tuple[LaunchResult, ...]:
    """Launch the NodeClaims: one result each, in the order of the requests, by one CreateFleet call for each group.

    More calls follow only if a launch template was deleted, if EC2 answers that a repeated request differs, if the
    pools of the least expected price have no capacity, or if a capacity type (reserved, spot) has none and the
    NodeClaims allow the next one: one call for each type then. ``interruption_rates`` are by pool, where they differ
    from the default. Each call waits for the ``rate_limiter`` until :data:`RATE_LIMIT_WAIT_TIMEOUT` after ``now``;
    NodeClaims without a call by then fail as *throttled*. Without a rate limiter calls are not limited.
    ``partial_launches`` remember what EC2 could not launch, if the run dies before its results are written.
    ``recorded`` reads the ids of the instances that NodeClaims have, by NodeClaim: where a call is repeated.
    """
    groups: defaultdict[str, list[LaunchRequest]] = defaultdict(list)
    for request in requests:
        groups[_group_name(request.claim)].append(request)
    deadline = now + RATE_LIMIT_WAIT_TIMEOUT
    calls = FleetCalls(
        clients=clients, runtime=runtime, rate_limiter=rate_limiter, deadline=deadline, recorded=recorded
    )
    launch_groups: list[_LaunchGroup] = []
    for name, members in groups.items():
        sorted_members = tuple(sorted(members, key=lambda r: r.claim.metadata.uid))
        launch_groups.append(
            _LaunchGroup(
                requests=sorted_members,
                fleet_request=fleet_request(name, cluster, sorted_members),
                calls=calls,
                interruption_rates=interruption_rates or {},
                partial_launches=partial_launches,
            )
        )
    launched = in_threads(_LaunchGroup.launch, launch_groups, sequential_limit=1)
    results = {result.claim_name: result for group_results in launched for result in group_results}
    return tuple(results[r.claim.name] for r in requests)


def _group_name(claim: NodeClaim) -> str:
    return claim.metadata.annotations.get(labels.LAUNCH_GROUP) or claim.metadata.uid or claim.name


class _LaunchGroup(MutableStruct):
    """NodeClaims with the same requirements, in order of uid."""

    requests: tuple[LaunchRequest, ...]
    fleet_request: FleetRequest
    calls: FleetCalls
    interruption_rates: Mapping[Pool, float]
    partial_launches: PartialLaunches | None
    plan: FleetPlan | None = None
    assigned: set[str] = set()
    """The NodeClaims whose instance is tagged or recorded as theirs."""

    def launch(self) -> list[LaunchResult]:
        try:
            return in_order_of_launch(self._launch(), self.requests, self.assigned)
        except CreateFleetError as error:
            return self._failures(error.code, error.message, self.requests)
        except UserDataError as error:
            return self._failures(EventReason("InvalidUserData"), str(error), self.requests)
        except ClientError as error:
            return self._failures(error_code(error), error.response["Error"].get("Message", ""), self.requests)
        except ParamValidationError as error:
            return self._failures(EventReason("InvalidRequest"), str(error), self.requests)
        except BotoCoreError as error:
            return [failure(r.claim, "throttled", "Unreachable", str(error)) for r in self.requests]

    def _launch(self) -> list[LaunchResult]:
        status = self.fleet_request.node_class.status
        by_zone = self.calls.best_subnets(status.subnets)
        plan = self.plan = self._plan(by_zone)
        if self._is_unconfirmed():
            return self._launch_ended(plan)
        if plan is None or self._has_failed_before():
            return self._launch_missing(plan, attempt=self._minute)
        first = self._narrowed(plan)
        try:
            response = self.calls.create(self.fleet_request, first, self.requests, step="first")
        except CreateFleetError as error:
            if error.code not in USED_TOKEN:
                raise
            return self._after_used_token(plan, error.code)
        if response.throttled or response.token_is_used:
            # EC2 repeats this response for the token, so the token would never launch anything.
            return self._launch_missing(plan, attempt=self._minute)
        results = assign_response(first, response, self.requests)
        if all(isinstance(r, LaunchedInstance) for r in results):
            return results
        return self._retry_failed(results, first, plan, by_zone)

    def _retry_failed(
        self, results: list[LaunchResult], first: FleetPlan, plan: FleetPlan, by_zone: Mapping[str, Subnet]
    ) -> list[LaunchResult]:
        """Launch what failed for lack of capacity by the whole plan, and then by those of other capacity types."""
        if first != plan and (unavailable := _unavailable(results)):
            wider = without_unavailable(plan, unavailable)
            if wider is not None:
                results = self._retry(wider, results, step="wider")
        while is_plan_exhausted(results, plan):
            next_plan = self._plan(by_zone, after=plan.capacity_type)
            if next_plan is None:
                break
            results = self._retry(next_plan, results, step=f"instead of {plan.capacity_type}")
            plan = next_plan
        self._remember_partial(results)
        return results

    def _remember_partial(self, results: Sequence[LaunchResult]) -> None:
        """Remember how many instances EC2 launched for the group, if it lacked capacity for the others."""
        if self.partial_launches is None or not capacity_failures(results):
            return
        launched = sum(isinstance(r, LaunchedInstance) or r.kind == "unconfirmed" for r in results)
        with suppress(ClientError, BotoCoreError):  # without the record only a run that dies now costs time
            self.partial_launches.remember(self.fleet_request.group, instances=launched, now=self.calls.runtime.now())

    def _has_launched_all(self, shown: Sequence[Instance]) -> bool:
        """Whether these are all instances that EC2 has launched for the group, so that none is hidden."""
        if self.partial_launches is None:
            return False
        with suppress(ClientError, BotoCoreError):
            launched = self.partial_launches.instances(self.fleet_request.group, now=self.calls.runtime.now())
            return launched is not None and len(shown) >= launched
        return False

    def _narrowed(self, plan: FleetPlan) -> FleetPlan:
        """The plan of the first request: narrow, unless the NodeClaims must have a choice of many pools.

        That is Karpenter's rule for minValues and for replacements of nodes: a replacement from the cheapest pool would
        be likelier to be interrupted than the node that it replaces. If its NodePool says so, EC2 chooses among all.
        """
        options = self.requests[0].spot_options
        if options.allocation_strategy == CAPACITY_OPTIMIZED:
            return plan
        claims = [r.claim for r in self.requests]
        if any(r.min_values is not None for r in claims[0].spec.requirements):
            return plan
        if any(labels.REPLACES in c.metadata.annotations for c in claims):
            return plan
        cost = sum(r.interruption_cost for r in self.requests) / len(self.requests)
        return narrowed(plan, self.interruption_rates, interruption_cost=cost, at_least=options.diversity)

    def _plan(self, by_zone: Mapping[str, Subnet], *, after: str = "") -> FleetPlan | None:
        first = self.requests[0]
        plan = plan_fleet(
            first.instance_types,
            first.claim.spec.requirements,
            amis=self.fleet_request.node_class.status.amis,
            subnets=by_zone,
            after=after,
        )
        return None if plan is None else self.fleet_request.within_limit(plan)

    def _retry(self, plan: FleetPlan, results: list[LaunchResult], *, step: str) -> list[LaunchResult]:
        """Launch the NodeClaims that failed for lack of capacity by another plan; ``step`` names it."""
        failed = capacity_failures(results)
        requests = [r for r in self.requests if r.claim.name in failed]
        self.assigned |= failed.keys() if len(failed) == 1 else set()
        try:
            response = self.calls.create(self.fleet_request, plan, requests, step=f"{_uids(requests)}/{step}")
        except CreateFleetError as error:
            # Nothing is lost: either the instances exist, or the pods of the NodeClaims are scheduled again.
            return self._after_used_token(plan, error.code) if error.code in USED_TOKEN else results
        retried = assign_response(plan, response, requests)
        return with_retried(results, {r.claim_name: r for r in retried})

    def _has_failed_before(self) -> bool:
        """Whether a launch failed and a user was to change something: EC2 repeats the response for the same token."""
        conditions = [condition(r.claim.status.conditions, nodeclaim.LAUNCHED) for r in self.requests]
        return any(c is not None and c.status == "False" for c in conditions)

    def _is_unconfirmed(self) -> bool:
        """Whether EC2 has answered before and may have launched an instance that it doesn't show yet."""
        conditions = [condition(r.claim.status.conditions, nodeclaim.LAUNCHED) for r in self.requests]
        return any(c is not None and c.reason == nodeclaim.LAUNCH_UNCONFIRMED for c in conditions)

    @property
    def _minute(self) -> str:
        return f"{self.calls.deadline:%Y-%m-%dT%H:%M}"

    def _after_used_token(self, plan: FleetPlan, code: str) -> list[LaunchResult]:
        """Assign the instances of an earlier call, and launch those that have ended, as EC2 shows or says."""
        return self._launch_missing(plan) if code == INSTANCE_TERMINATED else self._launch_ended(plan)

    def _launch_ended(self, plan: FleetPlan | None) -> list[LaunchResult]:
        """Assign the instances that an earlier call launched, and launch those again that have ended.

        An instance that EC2 doesn't show may run: its NodeClaim stays unconfirmed until EC2 shows it, unless EC2 shows
        every instance that it has launched for the group.
        """
        results, missing, shown = self._assign_existing()
        recorded = frozenset(self.calls.recorded().values())
        ended = [i for i in shown if i.state not in instances.PENDING_OR_RUNNING and i.id not in recorded]
        has_launched_all = bool(missing) and self._has_launched_all(shown)
        by_claim = Counter(i.tags.get(labels.NODECLAIM_TAG, "") for i in ended)
        confirmed: list[LaunchRequest] = []
        for request in missing:
            tag = request.claim.name if by_claim[request.claim.name] else ""
            if not by_claim[tag] and has_launched_all:
                message = "EC2 had capacity for some NodeClaims of this launch only"
                results.append(failure(request.claim, "capacity", EventReason("UnfulfillableCapacity"), message))
                continue
            if not by_claim[tag]:
                message = "an instance may have been launched that EC2 doesn't show yet"
                results.append(failure(request.claim, "unconfirmed", nodeclaim.LAUNCH_UNCONFIRMED, message))
                continue
            by_claim[tag] -= 1
            confirmed.append(request)
        return results + self._launch_requests(plan, confirmed, attempt="")

    def _launch_missing(self, plan: FleetPlan | None, *, attempt: str = "") -> list[LaunchResult]:
        """Assign the instances with the group's tag, and launch those that are missing.

        ``attempt`` makes the tokens differ from those of an earlier attempt, whose responses EC2 repeats.
        """
        results, missing, _ = self._assign_existing()
        return results + self._launch_requests(plan, missing, attempt)

    def _assign_existing(self) -> tuple[list[LaunchResult], list[LaunchRequest], list[Instance]]:
        """The results for the group's instances, the requests without one, and every instance that EC2 shows.

        An instance without a tag belongs to the NodeClaim that has recorded it. Those that none has are assigned in
        the order of the launch, so that a run that still records them assigns the same.
        """
        cluster, group = self.fleet_request.cluster.name, self.fleet_request.group
        listed = instances.list_by_launch_group(self.calls.clients.ec2(), cluster, [group])
        recorded = self.calls.recorded()
        taken = frozenset(recorded.values())
        existing = {i.id: i for i in listed if i.state in instances.PENDING_OR_RUNNING}
        by_claim = {i.tags[labels.NODECLAIM_TAG]: i for i in existing.values() if labels.NODECLAIM_TAG in i.tags}
        by_claim |= {name: existing[id_] for name, id_ in recorded.items() if id_ in existing}
        self.assigned |= by_claim.keys()
        unassigned = [i for i in existing.values() if labels.NODECLAIM_TAG not in i.tags and i.id not in taken]
        results: list[LaunchResult] = []
        missing: list[LaunchRequest] = []
        for request in self.requests:
            instance = by_claim.get(request.claim.name) or (unassigned.pop(0) if unassigned else None)
            if instance is None:
                missing.append(request)
            else:
                results.append(assign_existing(request, instance))
        return results, missing, list(listed)

    def _launch_requests(
        self, plan: FleetPlan | None, missing: Sequence[LaunchRequest], attempt: str
    ) -> list[LaunchResult]:
        if not missing:
            return []
        self.assigned |= {r.claim.name for r in missing} if len(missing) == 1 else set()
        if plan is None:
            message = "no instance type that the NodeClaim allows has an available offering in a zone of its subnets"
            reason = EventReason("NoCompatibleOffering")
            return [failure(r.claim, "capacity", reason, message) for r in missing]
        try:
            response = self._create_missing(plan, missing, attempt)
            return assign_response(plan, response, missing)
        except CreateFleetError as error:
            return self._failures(error.code, error.message, missing)

    def _create_missing(self, plan: FleetPlan, missing: Sequence[LaunchRequest], attempt: str) -> FleetResponse:
        """One call for the missing instances. If a token was used, its instances are gone: the next one is used."""
        for number in range(_MAX_CLIENT_TOKENS):
            try:
                return self.calls.create(self.fleet_request, plan, missing, step=f"{_uids(missing)}/{attempt}/{number}")
            except CreateFleetError as error:
                if error.code not in USED_TOKEN:
                    raise
        raise CreateFleetError("PriorRequestNotComplete", "the NodeClaim was requested in several ways just now")

    def _failures(self, code: str, message: str, requests: Sequence[LaunchRequest]) -> list[LaunchResult]:
        kind = errors.kind(code)
        unavailable = self.plan.offering_keys if kind == "capacity" and self.plan is not None else ()
        text = errors.user_message(code, message)
        return [failure(r.claim, kind, code, text, unavailable) for r in requests]


def _unavailable(results: Sequence[LaunchResult]) -> frozenset[OfferingKey]:
    """The offerings without capacity of the NodeClaims that failed for lack of it; empty if none failed so."""
    return frozenset(key for failed in capacity_failures(results).values() for key in failed.unavailable)


def _uids(requests: Sequence[LaunchRequest]) -> str:
    return ",".join(r.claim.metadata.uid for r in requests)
