"""Reads the account's commitments from EC2 and Savings Plans, and which instances run: once an hour, for all clusters.

An answer that is denied or fails leaves its commitments out, with a sentence that says so. Without the running
instances all commitments would look unused, so then none is counted. Rates of a Savings Plan never change, so they are
read once and kept from the last reading; their pages would be most of the calls.

Numbers and times of Savings Plans are strings (botocore's model of 2019-06-28); those of Reserved Instances aren't.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from shared.api import labels
from shared.base.aws import PAGES, error_code
from shared.base.struct import with_fields
from shared.commitments.commitment import Commitments, ReservedInstances, SavingsPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from shared.commitments.commitment import PlanKind

T = TypeVar("T")

MAX_NEW_PLANS = 20
"""Savings Plans whose rates are read in one reading: each is a few slow pages, and the function has five minutes."""
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_LINUX = frozenset({"Linux/UNIX", "Linux/UNIX (Amazon VPC)"})
_SHARED_TENANCY = frozenset({"shared", "default"})
_HOUR = timedelta(hours=1).total_seconds()
_PAGE = 1000
_PLAN_KINDS: Mapping[str, PlanKind] = {"Compute": "Compute", "EC2Instance": "EC2Instance"}
_CLUSTER_NAME_TAGS = (labels.CLUSTER_NAME_TAG, "aws:eks:cluster-name", "eks:cluster-name")
"""Tags whose value is the cluster: Karpenter's and Tenon's; EKS's own; and those of managed node groups."""
_CLUSTER_TAG = labels.CLUSTER_TAG.format(cluster="")


class CommitmentClients(Protocol):
    """The AWS clients that commitments are read with: those of :mod:`shared.base.aws`."""

    def ec2(self) -> EC2Client:
        """EC2, for Reserved Instances and the running instances."""
        ...

    def savings_plans(self) -> Any:  # noqa: ANN401 (its types aren't installed)
        """Savings Plans."""
        ...


class MalformedCommitmentError(ValueError):
    """A commitment that can't be counted; the message says which field is wrong."""


def read(clients: CommitmentClients, previous: Commitments | None, *, region: str, now: datetime) -> Commitments:
    """The commitments and the running instances of the account in the Region.

    ``previous`` is the last reading, of any age, whose rates are kept. What can't be read is named in ``problem``.
    """
    ec2, problems = clients.ec2(), list[str]()
    usage = _attempt("running instances", "ec2:DescribeInstances", lambda: running_instances(ec2), problems)
    if usage is None:
        return Commitments(fetched_at=now, problem=f"no commitment counts: {problems[0]}")
    reserved = _attempt(
        "Reserved Instances",
        "ec2:DescribeReservedInstances",
        lambda: _described_reserved_instances(ec2),
        problems,
    )
    plans = _attempt("Savings Plans", "savingsplans:DescribeSavingsPlans", lambda: _described_plans(clients), problems)
    known = {plan.id: plan.rates for plan in previous.plans if plan.rates} if previous is not None else {}
    return Commitments(
        fetched_at=now,
        reserved=reserved_instances(reserved or (), now=now, problems=problems),
        plans=_with_rates(
            clients, savings_plans(plans or (), region=region, now=now, problems=problems), known, region, problems
        ),
        usage=usage,
        problem="; ".join(problems),
    )


def running_instances(ec2: EC2Client) -> dict[str, dict[str, int]]:
    """By cluster ("" for none): how many on-demand Linux instances with shared tenancy run, by "type/zone".

    Raises:
        ClientError: EC2 returned an error.
        BotoCoreError: EC2 can't be reached.
    """
    running = [{"Name": "instance-state-name", "Values": ["running"]}]
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=running,  # type: ignore[arg-type]  # typed as a union of dicts with literal keys
        PaginationConfig=PAGES,
    )
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for page in pages:
        for reservation in page["Reservations"]:
            for instance in reservation.get("Instances", ()):
                if is_covered(instance):
                    kind = f"{instance['InstanceType']}/{instance['Placement'].get('AvailabilityZone', '')}"
                    counts[cluster_of(instance)][kind] += 1
    return {cluster: dict(sorted(kinds.items())) for cluster, kinds in sorted(counts.items())}


def is_covered(instance: InstanceTypeDef) -> bool:
    """Whether commitments can cover the instance: on demand (or in a capacity reservation), Linux, shared tenancy.

    Spot instances and those of Capacity Blocks have an InstanceLifecycle.
    """
    return (
        not instance.get("InstanceLifecycle")
        and instance.get("PlatformDetails", "Linux/UNIX") in _LINUX
        and instance.get("Placement", {}).get("Tenancy", "default") == "default"
        and "InstanceType" in instance
        and "Placement" in instance
    )


def cluster_of(instance: InstanceTypeDef) -> str:
    """The name of the EKS cluster that the instance's tags name; "" if none does, or several share it."""
    tags = {tag.get("Key", ""): tag.get("Value", "") for tag in instance.get("Tags", ())}
    named = next((tags[key] for key in _CLUSTER_NAME_TAGS if tags.get(key)), "")
    if named:
        return named
    owners = [key.removeprefix(_CLUSTER_TAG) for key, value in tags.items() if key.startswith(_CLUSTER_TAG) and value]
    return owners[0] if len(owners) == 1 else ""


def reserved_instances(
    described: Iterable[Mapping[str, Any]], *, now: datetime, problems: list[str]
) -> tuple[ReservedInstances, ...]:
    """The purchases that count, by id, from DescribeReservedInstances; those that can't be read become problems."""
    purchases = _parsed(
        "Reserved Instances", "ReservedInstancesId", described, lambda d: _reserved(d, now=now), problems
    )
    return tuple(sorted(purchases, key=lambda r: r.id))


def savings_plans(
    described: Iterable[Mapping[str, Any]], *, region: str, now: datetime, problems: list[str]
) -> tuple[SavingsPlan, ...]:
    """The plans that count in the Region, by id and without rates, from DescribeSavingsPlans; the same."""
    active = _parsed(
        "Savings Plan", "savingsPlanId", described, lambda d: _savings_plan(d, region=region, now=now), problems
    )
    return tuple(sorted(active, key=lambda p: p.id))


def rates(results: Iterable[Mapping[str, Any]], *, region: str) -> dict[str, float]:
    """USD per hour by instance type, from DescribeSavingsPlanRates: of running Linux instances with shared tenancy.

    Rates of unused capacity reservations (usage type UnusedBox) are those of the instances, and are left out.
    """
    by_type: dict[str, float] = {}
    for result in results:
        properties = {p.get("name"): p.get("value") for p in result.get("properties", ())}
        usage = str(result.get("usageType") or "BoxUsage").partition(":")[0]
        if (
            result.get("productType", "EC2") == "EC2"
            and result.get("unit", "Hrs") == "Hrs"
            and usage.rpartition("-")[2] == "BoxUsage"
            and properties.get("region", region) == region
            and properties.get("productDescription") in _LINUX
            and str(properties.get("tenancy", "shared")).lower() in _SHARED_TENANCY
            and (name := properties.get("instanceType"))
            and (rate := _number(result.get("rate"))) is not None
        ):
            by_type[name] = rate
    return dict(sorted(by_type.items()))


def _attempt(title: str, action: str, call: Callable[[], T], problems: list[str]) -> T | None:
    """The answer of a call, which needs permission for the action; None and a problem if it fails."""
    try:
        return call()
    except (ClientError, BotoCoreError) as error:
        problems.append(f"{title} aren't read: {_reason(error, action)}")
        return None


def _reason(error: ClientError | BotoCoreError, action: str) -> str:
    if isinstance(error, BotoCoreError):
        return str(error)
    code = error_code(error)
    if code in _DENIED:
        return f"the catalog function has no permission for {action}"
    return f"{action} fails with {code}: {error.response.get('Error', {}).get('Message', '')}".rstrip(": ")


def _parsed(
    title: str,
    id_field: str,
    described: Iterable[Mapping[str, Any]],
    parse: Callable[[Mapping[str, Any]], T | None],
    problems: list[str],
) -> Iterator[T]:
    for description in described:
        try:
            parsed = parse(description)
        except MalformedCommitmentError as error:
            problems.append(f"{title} {description.get(id_field) or '(without id)'} can't be counted: {error}")
        else:
            if parsed is not None:
                yield parsed


def _reserved(described: Mapping[str, Any], *, now: datetime) -> ReservedInstances | None:
    """The purchase; None if it isn't active or is for another platform or tenancy."""
    if (
        described.get("State") != "active"
        or described.get("ProductDescription") not in _LINUX
        or described.get("InstanceTenancy", "default") != "default"
        or not described.get("InstanceCount")
    ):
        return None
    ends = _time(described, "End")
    if ends <= now:
        return None
    is_zonal = described.get("Scope") == "Availability Zone"
    return ReservedInstances(
        id=_text(described, "ReservedInstancesId"),
        instance_type=_text(described, "InstanceType"),
        zone=_text(described, "AvailabilityZone") if is_zonal else "",
        count=int(described["InstanceCount"]),
        hourly=_hourly(described),
        ends=ends,
    )


def _hourly(described: Mapping[str, Any]) -> float:
    """USD per hour of one of the Reserved Instances: hourly charges, and the upfront payment over the term.

    Both are for one instance, not for all of the purchase. UsagePrice isn't counted: it is paid for use only.
    """
    charges = described.get("RecurringCharges") or ()
    recurring = sum(_number(c.get("Amount")) or 0.0 for c in charges if c.get("Frequency", "Hourly") == "Hourly")
    upfront, duration = _number(described.get("FixedPrice")) or 0.0, _number(described.get("Duration"))
    if upfront and not duration:
        raise MalformedCommitmentError("it has a FixedPrice and no Duration")
    return recurring + (upfront / duration * _HOUR if duration else 0.0)


def _savings_plan(described: Mapping[str, Any], *, region: str, now: datetime) -> SavingsPlan | None:
    """The plan without rates; None if it isn't active, or can't cover instances of the Region."""
    kind = _PLAN_KINDS.get(str(described.get("savingsPlanType")))
    if described.get("state") != "active" or kind is None:
        return None
    if kind == "EC2Instance" and described.get("region") != region:
        return None
    ends = _time(described, "end")
    if ends <= now:
        return None
    currency = "CNY" if region.startswith("cn-") else "USD"
    if described.get("currency", currency) != currency:
        raise MalformedCommitmentError(f"its currency is {described['currency']}, and prices are in {currency}")
    commitment = _number(described.get("commitment"))
    if commitment is None:
        raise MalformedCommitmentError(f"commitment is {described.get('commitment')!r}")
    return SavingsPlan(
        id=_text(described, "savingsPlanId"),
        kind=kind,
        family=_text(described, "ec2InstanceFamily") if kind == "EC2Instance" else "",
        commitment=commitment,
        rates={},
        ends=ends,
    )


def _described_reserved_instances(ec2: EC2Client) -> Sequence[Mapping[str, Any]]:
    active = ec2.describe_reserved_instances(Filters=[{"Name": "state", "Values": ["active"]}])
    return active.get("ReservedInstances", [])


def _described_plans(clients: CommitmentClients) -> list[Mapping[str, Any]]:
    client = clients.savings_plans()
    return list(_pages(lambda token: client.describe_savings_plans(states=["active"], **token), "savingsPlans"))


def _with_rates(
    clients: CommitmentClients,
    plans: Iterable[SavingsPlan],
    known: Mapping[str, dict[str, float]],
    region: str,
    problems: list[str],
) -> tuple[SavingsPlan, ...]:
    """The plans with their rates; those whose rates aren't known are left out, with a problem."""
    rated: list[SavingsPlan] = []
    left_out: defaultdict[str, list[str]] = defaultdict(list)
    reads = 0
    for plan in plans:
        plan_rates = known.get(plan.id)
        if plan_rates is None and reads == MAX_NEW_PLANS:
            left_out["the next readings read them"].append(plan.id)
            continue
        if plan_rates is None:
            reads += 1
            try:
                plan_rates = rates(_described_rates(clients, plan.id, region), region=region)
            except (ClientError, BotoCoreError) as error:
                left_out[_reason(error, "savingsplans:DescribeSavingsPlanRates")].append(plan.id)
                continue
        if not plan_rates:
            left_out[f"they have none for Linux with shared tenancy in {region}"].append(plan.id)
            continue
        rated.append(with_fields(plan, rates=plan_rates))
    problems += [f"rates of Savings Plans {', '.join(ids)} aren't read: {reason}" for reason, ids in left_out.items()]
    return tuple(rated)


def _described_rates(clients: CommitmentClients, plan_id: str, region: str) -> Iterator[Mapping[str, Any]]:
    # Tenancy is compared here: it can be filtered, but AWS documents none of its values.
    filters = [
        {"name": "region", "values": [region]},
        {"name": "productType", "values": ["EC2"]},
        {"name": "productDescription", "values": sorted(_LINUX)},
    ]
    client = clients.savings_plans()
    return _pages(
        lambda token: client.describe_savings_plan_rates(
            savingsPlanId=plan_id, filters=filters, maxResults=_PAGE, **token
        ),
        "searchResults",
    )


def _pages(call: Callable[[dict[str, str]], Mapping[str, Any]], key: str) -> Iterator[Mapping[str, Any]]:
    """The results of all pages; botocore has no paginators for Savings Plans."""
    token: dict[str, str] = {}
    while True:
        page = call(token)
        yield from page.get(key, ())
        if not page.get("nextToken"):
            return
        token = {"nextToken": page["nextToken"]}


def _text(described: Mapping[str, Any], field: str) -> str:
    if not (value := described.get(field)):
        raise MalformedCommitmentError(f"it has no {field}")
    return str(value)


def _number(value: object) -> float | None:
    """A number that isn't negative; None if it isn't one."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _time(described: Mapping[str, Any], field: str) -> datetime:
    value = described.get(field)
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise MalformedCommitmentError(f"{field} is {value!r}") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
