"""The calls of a deployed stack that are judged: each by each role, and whether it has to be allowed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from local.aws import iam_policies
from shared.base.struct import Struct, with_fields
from tests.aws_judges.iam_engine import BEYOND, Policies, policies_of
from tests.aws_judges.option_sets import CALLS_OF_OPTIONS, STACKS, callers
from tests.integration.least_privilege.conftest import account
from tests.integration.least_privilege.test_least_privilege import requests_of
from tests.integration.least_privilege.unused_actions import UNUSED_ACTIONS, IAMRequest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local.aws.iam_policies import Request
    from tests.integration.least_privilege.conftest import Targets

_OTHER_ACCOUNT = "999999999999"
_OTHER_REGION = "eu-west-1"
_SHARED = ("capacity-reservation", "image", "placement-group", "security-group", "snapshot", "subnet")
"""The resource types of a launch that may be another account's."""
_EVERYWHERE = frozenset({"arc-zonal-shift", "pricing", "savingsplans"})
"""The services whose one endpoint is in another Region, and one whose calls name the cluster's ARN in a condition."""


class SimulatedCall(Struct, kw_only=True):
    """A call by a role: its IAM requests, whether they are all allowed, and what the local IAM says of each."""

    caller: str
    call: str
    requests: tuple[Request, ...]
    expected: bool
    ours: tuple[bool, ...]
    is_fabricated: bool = False
    """Whether it has keys or resources that IAM never sees together, to notice statements that are too wide."""

    def __str__(self) -> str:
        return f"{self.caller}: {self.call}"


class JudgedStack(Struct, kw_only=True):
    """The policies of a stack's roles, and the calls that are simulated with them."""

    policies: Policies
    calls: tuple[SimulatedCall, ...]


@contextmanager
def deployed(stack: str) -> Iterator[JudgedStack]:
    """One of the stacks in the local AWS."""
    with account(**STACKS[stack]) as targets:
        roles = {name: role for each in targets.cloud.stacks for name, role in each.role_names().items()}
        named = list(_named_calls(targets, stack))
        calls = tuple(
            _by(caller, call, requests, targets, is_allowed=caller.partition("-")[0] in allowed)
            for caller in roles
            for call, requests, allowed in named
        )
        unused = [request for request in UNUSED_ACTIONS if not _is_missing(request, targets)]
        fabricated = tuple(
            with_fields(
                _by(caller, each.action, (each.request(targets),), targets, is_allowed=False), is_fabricated=True
            )
            for caller in roles
            for each in unused
        )
        near = tuple(
            _by(call.caller, f"{call.call}, {difference}", (request,), targets, is_allowed=False)
            for call in calls
            if call.expected
            for difference, request in _near_misses(call.requests)
        )
        yield JudgedStack(policies=policies_of(roles), calls=(*calls, *fabricated, *near))


def _by(caller: str, call: str, requests: Sequence[Request], targets: Targets, *, is_allowed: bool) -> SimulatedCall:
    statements = targets.cloud.enforcement.statements(caller)
    return SimulatedCall(
        caller=caller,
        call=call,
        requests=tuple(requests),
        expected=is_allowed,
        ours=tuple(iam_policies.allows(request, identity=statements) for request in requests),
    )


def _named_calls(targets: Targets, stack: str) -> Iterator[tuple[str, Sequence[Request], frozenset[str]]]:
    """Each call with its requests and who may make it; without those about resources that the stack doesn't have."""
    for call in CALLS_OF_OPTIONS:
        try:
            requests = requests_of(call, targets)
        except KeyError:
            continue
        yield call.name, requests, callers(call, stack)


def _is_missing(unused: IAMRequest, targets: Targets) -> bool:
    """Whether it is about a resource that the stack doesn't have."""
    try:
        unused.request(targets)
    except (KeyError, ValueError):
        return True
    return False


def _near_misses(requests: Sequence[Request]) -> Iterator[tuple[str, Request]]:
    """Requests like these that no role may make: in another account or Region, or without the cluster's tag."""
    for request in requests:
        if request.action in BEYOND:
            continue
        yield from _elsewhere(request)
        for key, values in request.context.items():
            if key.partition("/")[0] in ("aws:ResourceTag", "aws:RequestTag") and "cluster" in key:
                without = {name: held for name, held in request.context.items() if name != key}
                yield f"without {key}", with_fields(request, context=without)
                other_cluster = key.rpartition("/")[0] + "/another"
                yield f"with {other_cluster}", with_fields(request, context={**without, other_cluster: values})


def _elsewhere(request: Request) -> Iterator[tuple[str, Request]]:
    context = {**request.context, "aws:RequestedRegion": [_OTHER_REGION]}
    if request.resource == "*":
        if request.action.partition(":")[0] not in _EVERYWHERE and "RequestedRegion" in str(request.context):
            yield "in another Region", with_fields(request, context=context)
        return
    arn, partition, service, region, owner, resource = request.resource.split(":", 5)
    if owner and resource.partition("/")[0] not in _SHARED:
        elsewhere = f"{arn}:{partition}:{service}:{region}:{_OTHER_ACCOUNT}:{resource}"
        yield "in another account", with_fields(request, resource=elsewhere)
    if region:
        elsewhere = f"{arn}:{partition}:{service}:{_OTHER_REGION}:{owner}:{resource}"
        yield "in another Region", with_fields(request, resource=elsewhere, context=context)
