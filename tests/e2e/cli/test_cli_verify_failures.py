"""`tenon verify` of a deployment that fails in use: the step that it belongs to names it in one sentence."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from local.aws import backends
from local.faults import Fault
from local.kubelets.behavior import NORMAL, MachineBehavior
from tests.e2e.cli.verified_world import ALWAYS, VerifiedWorld, assert_one_sentence, faults, verified_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from local.faults import InjectionPoint

pytestmark = pytest.mark.long
DENIED = Fault(code="UnauthorizedOperation", status=403, message="You are not authorized to perform this operation.")


@pytest.fixture
def verified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerifiedWorld]:
    with verified_world(tmp_path_factory.mktemp("verify")) as opened:
        yield opened


@contextlib.contextmanager
def with_tokens_forgotten(verified: VerifiedWorld) -> Iterator[None]:
    class Forgetful(dict[str, Any]):
        def __contains__(self, _token: object) -> bool:
            return False

    with backends.replaced(verified.world.aws.fleets, "_responses", Forgetful()):
        yield


@contextlib.contextmanager
def with_tags_hidden(verified: VerifiedWorld) -> Iterator[None]:
    consistency = verified.world.aws.consistency
    described = consistency.described

    def without_tagged(reservations: Sequence[Any], filters: Any, ids: Sequence[str]) -> list[Any]:
        hidden = "tag:tenon-verify" in (filters or {})
        return [] if hidden else described(reservations, filters, ids)

    with backends.replaced(consistency, "described", without_tagged):
        yield


@contextlib.contextmanager
def with_machines_that_never_join(verified: VerifiedWorld) -> Iterator[None]:
    verified.behavior = MachineBehavior(never_joins=True)
    try:
        yield
    finally:
        verified.behavior = NORMAL


@contextlib.contextmanager
def without_spot(verified: VerifiedWorld) -> Iterator[None]:
    capacity = verified.world.aws.capacity
    capacity.set("spot", "*", "*", 0)
    try:
        yield
    finally:
        capacity.set("spot", "*", "*", None)


def denied(service: str, operation: str, function: str) -> Callable[[VerifiedWorld], AbstractContextManager[None]]:
    """IAM denies a function an operation."""

    def enter(verified: VerifiedWorld) -> AbstractContextManager[None]:
        verified.world.faults.inject_aws(service, operation, DENIED, times=ALWAYS, caller=function)
        return faults(verified)

    return enter


def with_reason_missing(verified: VerifiedWorld) -> AbstractContextManager[None]:
    """No NodeClaim's status can be written while an instance is protected."""
    world = verified.world

    def is_status_of_protected(point: InjectionPoint) -> bool:
        about_claims = point.operation == "PATCH" and "/nodeclaims/" in point.target and "/status" in point.target
        return about_claims and any(i.disable_api_termination for i in world.instances())

    world.faults.inject(is_status_of_protected, Fault(code="InternalError", status=500), times=ALWAYS)
    return faults(verified)


def without_right(function: str, resource: str, verb: str) -> Callable[[VerifiedWorld], AbstractContextManager[None]]:
    """RBAC denies a function a verb."""
    return lambda verified: verified.edit_role(f"tenon-{function}", resource, verb)


STATES: dict[str, tuple[Callable[[VerifiedWorld], AbstractContextManager[None]], str, tuple[str, ...]]] = {
    "token-not-honoured": (
        with_tokens_forgotten,
        "client token",
        ("CreateFleet launched another instance for the same client token",),
    ),
    "tags-never-visible": (with_tags_hidden, "node", ("DescribeInstances didn't find it by its tags",)),
    "createfleet-denied": (
        denied("ec2", "CreateFleet", "provisioner"),
        "node",
        ("No instance was launched for a pending pod within 3 minutes", "UnauthorizedOperation"),
    ),
    "never-ready": (
        with_machines_that_never_join,
        "node",
        ("An instance was launched, but its node wasn't Ready within 6 minutes",),
    ),
    "never-consolidated": (
        without_right("disruption", "nodeclaims", "delete"),
        "node",
        (
            "The empty node and its instance weren't removed within 7 minutes",
            "disruption is denied delete resource nodeclaims",
        ),
    ),
    "termination-denied": (
        denied("ec2", "TerminateInstances", "termination"),
        "node",
        ("The empty node and its instance weren't removed", "UnauthorizedOperation"),
    ),
    "eviction-denied": (
        without_right("termination", "pods/eviction", "create"),
        "drain",
        (
            "The pod wasn't evicted within 3 minutes after its PodDisruptionBudget allowed it",
            "create resource pods/eviction",
        ),
    ),
    "no-spot-capacity": (without_spot, "interruption", ("No instance was launched for a pending pod",)),
    "interruption-denied": (
        without_right("interruption", "nodeclaims", "delete"),
        "interruption",
        ("didn't begin to drain the node within 2 minutes", "interruption is denied delete resource nodeclaims"),
    ),
    "reason-missing": (
        with_reason_missing,
        "protection",
        ("The NodeClaim of a protected instance doesn't say within 5 minutes why it stays",),
    ),
}
"""What another step finds: how it is entered, the step, and parts of its sentence."""


@pytest.mark.parametrize("state", STATES)
def test_the_step_that_it_belongs_to_names_it_and_nothing_is_left(verified: VerifiedWorld, state: str) -> None:
    enter, step, said = STATES[state]
    with enter(verified):
        results = verified.steps(step)
    assert {name for name, result in results.items() if result["status"] == "failed"} == {step}, results
    for part in said:
        assert part in results[step]["sentence"]
    assert_one_sentence(results[step]["sentence"])


def test_what_functions_were_denied_is_found_in_their_logs_and_steps_that_need_a_node_are_skipped(
    verified: VerifiedWorld,
) -> None:
    with denied("ec2", "CreateFleet", "provisioner")(verified):
        results = verified.steps("drain", "denials")
    assert results["denials"]["status"] == "failed"
    assert "provisioner is denied" in results["denials"]["sentence"]
    assert results["drain"]["status"] == "skipped"
    assert results["drain"]["sentence"] == 'It needs the step "node", which didn\'t pass.'
