"""`tenon verify` of a deployment whose wiring is broken in one way: the step "wiring" names it in one sentence."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from infra.cluster import resource_names
from local.faults import Fault
from local.kubernetes import kinds
from shared.cluster.lease import RELAY_LEASE, lease_name, micro_time
from tests.e2e.cli.verified_world import ALWAYS, CLUSTER, VerifiedWorld, assert_one_sentence, faults, verified_world

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerifiedWorld]:
    with verified_world(tmp_path_factory.mktemp("verify")) as opened:
        yield opened


def url_of(queue: str) -> str:
    return boto3.client("sqs").get_queue_url(QueueName=resource_names.queue(CLUSTER, queue, fifo=False))["QueueUrl"]


def purge(queue: str) -> None:
    boto3.client("sqs").purge_queue(QueueUrl=url_of(queue))


@contextlib.contextmanager
def without_event_source(verified: VerifiedWorld) -> Iterator[None]:
    functions = boto3.client("lambda")
    mappings = functions.list_event_source_mappings()["EventSourceMappings"]
    (uuid,) = (m["UUID"] for m in mappings if "termination" in m["EventSourceArn"])
    functions.update_event_source_mapping(UUID=uuid, Enabled=False)
    try:
        yield
    finally:
        functions.update_event_source_mapping(UUID=uuid, Enabled=True)
        verified.world.settle()


@contextlib.contextmanager
def without_target(_verified: VerifiedWorld) -> Iterator[None]:
    events, rule = boto3.client("events"), resource_names.rule(CLUSTER, "Sweep")
    targets = events.list_targets_by_rule(Rule=rule)["Targets"]
    (target,) = (t for t in targets if t["Arn"].endswith("-disruption"))
    events.remove_targets(Rule=rule, Ids=[target["Id"]])
    try:
        yield
    finally:
        events.put_targets(Rule=rule, Targets=[target])


@contextlib.contextmanager
def without_rule(_verified: VerifiedWorld) -> Iterator[None]:
    events, rule = boto3.client("events"), resource_names.rule(CLUSTER, "Rebalance")
    events.disable_rule(Name=rule)
    try:
        yield
    finally:
        events.enable_rule(Name=rule)


@contextlib.contextmanager
def with_another_pattern(_verified: VerifiedWorld) -> Iterator[None]:
    events, rule = boto3.client("events"), resource_names.rule(CLUSTER, "SpotInterruption")
    before = events.describe_rule(Name=rule)["EventPattern"]
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption"]}
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    try:
        yield
    finally:
        events.put_rule(Name=rule, EventPattern=before)


@contextlib.contextmanager
def without_policy(_verified: VerifiedWorld) -> Iterator[None]:
    sqs, url = boto3.client("sqs"), url_of("termination")
    before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    try:
        yield
    finally:
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": before})


@contextlib.contextmanager
def with_dead_letter(_verified: VerifiedWorld) -> Iterator[None]:
    boto3.client("sqs").send_message(QueueUrl=url_of("disruption-dead-letters"), MessageBody="garbage")
    try:
        yield
    finally:
        purge("disruption-dead-letters")


@contextlib.contextmanager
def with_foreign_holder(verified: VerifiedWorld) -> Iterator[None]:
    store, clock, since = verified.world.store, verified.world.clock, verified.world.clock.now() - timedelta(hours=1)
    renews = True

    def renew(_delivery: object) -> None:
        spec: dict[str, Any] = {
            "holderIdentity": "an-older-deployment",
            "leaseDurationSeconds": 60,
            "acquireTime": micro_time(since),
            "renewTime": micro_time(clock.now()),
        }
        if renews:
            store.patch(kinds.LEASES, lease_name(CLUSTER), {"spec": spec}, namespace="kube-system")

    renew(None)
    verified.world.aws.event_buses.observe(renew)  # it renews each minute, with each sweep
    try:
        yield
    finally:
        renews = False
        released = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 60}}
        store.patch(kinds.LEASES, lease_name(CLUSTER), released, namespace="kube-system")
        verified.world.run_for(timedelta(minutes=2))


@contextlib.contextmanager
def with_silent_relay(verified: VerifiedWorld) -> Iterator[None]:
    forbidden = Fault(code="Forbidden", status=403)
    verified.world.faults.inject_kubernetes("PATCH", f"leases/{RELAY_LEASE}", forbidden, times=ALWAYS)
    try:
        with faults(verified, settle=timedelta(minutes=1)):
            yield
    finally:
        verified.world.run_for(timedelta(minutes=2))
        purge("undelivered")  # the checks that failed meanwhile


@contextlib.contextmanager
def without_binding(verified: VerifiedWorld) -> Iterator[None]:
    store = verified.world.store
    kind = store.kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding")
    binding = store.get(kind, "tenon-interruption")
    store.delete(kind, "tenon-interruption")
    try:
        yield
    finally:
        fields = {"metadata": {"name": "tenon-interruption"}}
        store.create(kind, {**binding, **fields})
        verified.world.expect_denials()


STATES: dict[str, tuple[Callable[[VerifiedWorld], AbstractContextManager[None]], str]] = {
    "event-source-disabled": (without_event_source, "the event source mapping of the termination queue is Disabled"),
    "target-missing": (without_target, "rule tenon-demo.sweep has no target for function disruption"),
    "rule-disabled": (without_rule, "rule tenon-demo.rebalance is disabled"),
    "wrong-pattern": (with_another_pattern, "rule tenon-demo.spot-interruption doesn't match AWS's event"),
    "no-policy": (without_policy, "the policy of the termination queue doesn't allow rule tenon-demo.deleting"),
    "dead-letter": (with_dead_letter, "the queue disruption-dead-letters has 1 message"),
    "lease-held": (with_foreign_holder, "Lease kube-system/tenon-demo is held by an-older-deployment since"),
    "relay-silent": (with_silent_relay, "the relay is silent: Lease kube-system/tenon-relay isn't renewed since"),
    "no-binding": (without_binding, "ClusterRoleBinding tenon-interruption doesn't exist"),
}
"""What the step "wiring" finds: how it is entered, and a part of its sentence."""


@pytest.mark.parametrize("state", STATES)
def test_the_wiring_names_it(verified: VerifiedWorld, state: str) -> None:
    enter, said = STATES[state]
    with enter(verified):
        result = verified.steps("wiring")["wiring"]
    assert result["status"] == "failed"
    assert said in result["sentence"]
    assert_one_sentence(result["sentence"])
    mended = verified.steps("wiring")["wiring"]
    assert mended["status"] == "passed", mended
