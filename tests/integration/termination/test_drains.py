"""Drains: budgets hold in every state, deadlines are met, and waiting costs few invocations."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api import labels as names
from shared.base import hints
from shared.cluster.resources import NODE_CLAIMS, POD_DISRUPTION_BUDGETS, PODS, VOLUME_ATTACHMENTS
from shared.termination import requeue
from tests.integration.termination.conftest import evictions, ready_by_app

if TYPE_CHECKING:
    from local.kubernetes.objects import Change
    from tests.integration.termination.conftest import Environment

TERMINATION_TIMESTAMP = names.TERMINATION_TIMESTAMP


def test_pods_are_evicted_in_the_fewest_rounds_that_their_budgets_allow(env: Environment) -> None:
    min_available = {"a": 7, "b": 8, "c": 9}
    instance = env.a_node("old")
    for app, count in min_available.items():
        for i in range(10):
            env.pod(f"{app}-{i}", "old", app=app)
        env.budget(app, count)
    seen: list[str] = []

    def watch(change: Change) -> None:
        assert all(ready_by_app(env)[app] >= count for app, count in min_available.items())
        if change.type == "DELETED" and change.kind.kind in ("Pod", "Node", "NodeClaim"):
            seen.append(change.kind.kind)

    def kubelets() -> None:
        """Pods that were evicted stop, and others are ready elsewhere, before the next reconcile."""
        if env.states()[instance] == "terminated" and "terminated" not in seen:
            seen.append("terminated")
        for pod in env.pods():
            if "deletionTimestamp" in pod["metadata"]:
                name, app = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
                env.stop(name)
                env.pod(f"{name}-again", "new", app=app)

    env.store.subscribe(watch)
    env.after_each = kubelets
    env.delete("claim-old")
    env.run()
    # the strictest budget allows one eviction at a time
    assert env.evicting_invocations == 10
    assert seen == ["Pod"] * 30 + ["terminated", "Node", "NodeClaim"]
    assert [p["spec"]["nodeName"] for p in env.pods()] == ["new"] * 30


def test_a_drain_blocked_for_two_days_costs_little_records_one_event_and_ends_on_time(env: Environment) -> None:
    env.a_node("old", grace="48h")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    start = env.now
    gone: list[datetime] = []
    env.store.subscribe(lambda c: gone.append(env.now) if c.type == "DELETED" and c.kind.kind == "Pod" else None)
    env.run(until=lambda: bool(gone))
    assert env.invocations < 400
    assert timedelta() <= gone[0] - (start + timedelta(hours=48)) <= timedelta(seconds=5)
    (event,) = env.events("FailedDraining")
    assert event["count"] == 1
    blocked = "Failed to drain node, pod default/web can't be evicted now: PodDisruptionBudget web allows no disruption"
    assert event["message"] == blocked
    env.run()
    assert env.claims() == env.nodes() == []


@pytest.mark.parametrize(
    ("grace", "annotated", "why"),
    [
        ("30s", "", "the terminationGracePeriod of node old ends"),
        ("", "2026-11-21T12:00:30Z", "node old must be drained by 12:00:30 UTC"),
        ("10m", "2026-11-21T12:00:30Z", "node old must be drained by 12:00:30 UTC"),
    ],
)
def test_the_event_of_a_deleted_pod_says_which_deadline_it_met(
    env: Environment, grace: str, annotated: str, why: str
) -> None:
    env.a_node("old", grace=grace)
    env.pod("web", "old", grace=10)
    env.budget("web", 1)
    if annotated:
        annotations = {names.TERMINATION_TIMESTAMP: annotated}
        env.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"annotations": annotations}})
    env.delete("claim-old")
    env.run(until=lambda: bool(env.events("Evicted")))
    (event,) = env.events("Evicted")
    assert event["message"] == f"Deleted pod: {why}"


def test_a_pod_with_two_budgets_blocks_only_its_own_node_and_an_event_says_so(env: Environment) -> None:
    for name in ("old", "other"):
        env.a_node(name)
    env.pod("web", "old")
    env.pod("api", "old", app="api")
    env.pod("else", "other", app="else")
    env.budget("web", 0)
    env.budget("web", 0, name="web-again")

    def kubelets() -> None:
        for pod in env.pods():
            if "deletionTimestamp" in pod["metadata"]:
                env.stop(pod["metadata"]["name"])

    env.after_each = kubelets
    for claim in ("claim-old", "claim-other"):
        env.delete(claim)
    env.run(until=lambda: env.invocations >= 8)
    assert [p["metadata"]["name"] for p in env.pods()] == ["web"]
    assert [c["metadata"]["name"] for c in env.claims()] == ["claim-old"]
    (event,) = env.events("FailedDraining")
    assert "default/web can't be evicted" in event["message"]
    assert "more than one PodDisruptionBudget" in event["message"]
    env.client.delete(POD_DISRUPTION_BUDGETS.path("web-again", namespace="default"))
    env.run()
    assert env.pods() == env.claims() == env.nodes() == []


def test_early_messages_cost_one_request_and_write_nothing(env: Environment) -> None:
    env.a_node("old")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    for _ in range(60):
        env.step()
    env.requests.clear()
    waiting = list(env.due)
    env.turn(1)
    for detail_type in (hints.DRAIN, hints.NODE_CLAIMS_DELETING):
        env.send(detail_type, "claim-old")
        env.deliver(env.due.pop()[1])
    assert [method for method, _ in env.requests] == ["GET", "GET"]
    assert env.due == waiting


def blocked_for_long(env: Environment) -> None:
    """A drain that a budget has blocked long enough that its requeue time is minutes ahead."""
    env.a_node("old")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    env.run(until=lambda: env.due[0][0] - env.now > timedelta(minutes=5))
    env.turn(1)


def test_an_unblocked_drain_continues_at_once_and_remains_one_chain_of_reconciles(env: Environment) -> None:
    blocked_for_long(env)
    env.pod("web-again", "new")  # from now on the budget allows it
    unblocked = env.now
    env.send(hints.DRAINS_UNBLOCKED, "claim-old")
    env.step()
    assert env.now == unblocked
    (pod,) = (p for p in env.pods() if p["metadata"]["name"] == "web")
    assert "deletionTimestamp" in pod["metadata"]
    env.stop("web")
    env.run(until=lambda: not env.claims())
    assert env.now - unblocked < timedelta(seconds=30)
    env.run()
    assert env.due == []


def test_a_drain_that_is_still_blocked_keeps_its_requeue_time_and_records_no_event(env: Environment) -> None:
    blocked_for_long(env)
    waiting, before = list(env.due), env.stored_claim("claim-old")
    evictions_before = evictions(env)
    env.send(hints.DRAINS_UNBLOCKED, "claim-old", "nobody")
    env.send(hints.DRAINS_UNBLOCKED, "claim-old")
    env.step()
    assert evictions(env) == evictions_before + 1
    assert env.due == waiting
    after = env.stored_claim("claim-old")
    for claim in (before, after):
        claim["metadata"] = {k: v for k, v in claim["metadata"].items() if k != "resourceVersion"}
    assert after == before
    assert len(env.events("FailedDraining")) == 1


def test_volumes_are_requeued_by_the_time_since_the_drain_not_since_the_deletion(env: Environment) -> None:
    blocked_for_long(env)
    attached = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "va"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "old", "source": {"persistentVolumeName": "pv"}},
    }
    env.client.create(VOLUME_ATTACHMENTS.path(), attached)
    env.stop("web")
    env.send(hints.DRAINS_UNBLOCKED, "claim-old")
    detached_at, invocations = env.now + timedelta(seconds=60), env.invocations
    env.run(until=lambda: env.due[0][0] > detached_at)
    env.now = detached_at
    env.client.delete(VOLUME_ATTACHMENTS.path("va"))
    env.run(until=lambda: not env.claims())
    assert env.now - detached_at < timedelta(seconds=15)
    assert env.invocations - invocations < 60


def test_an_unblocked_message_does_not_begin_a_drain_before_its_requeue_time(env: Environment) -> None:
    env.a_node("old")
    env.pod("web", "old")
    stamp = {"metadata": {"annotations": {requeue.REQUEUE_AT: (env.now + timedelta(seconds=15)).isoformat()}}}
    env.client.patch(NODE_CLAIMS.path("claim-old"), stamp)
    env.client.delete(NODE_CLAIMS.path("claim-old"))
    env.send(hints.DRAINS_UNBLOCKED, "claim-old")
    env.step()
    assert env.due == []
    assert evictions(env) == 0
    env.turn(15)
    env.send(hints.NODE_CLAIMS_DELETING, "claim-old")
    env.step()
    assert evictions(env) == 1


def test_an_unblocked_message_about_a_nodeclaim_that_is_not_deleted_is_ignored(env: Environment) -> None:
    env.a_node("old")
    env.pod("web", "old")
    before = env.stored_claim("claim-old"), env.nodes(), env.pods()
    env.send(hints.DRAINS_UNBLOCKED, "claim-old")
    env.step()
    assert (env.stored_claim("claim-old"), env.nodes(), env.pods()) == before
    assert env.due == []


def test_lifecycle_resumes_only_drains_whose_requeue_time_is_overdue(env: Environment) -> None:
    env.a_node("old")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    for _ in range(100):
        env.step()
    assert len(env.due) == 1
    env.reconcile()
    assert len(env.due) == 1
    env.due.clear()  # the message is lost, and with it the chain of reconciles
    env.turn(3600)
    env.reconcile()
    assert len(env.due) == 1
    env.step()
    assert len(env.due) == 1


@pytest.mark.parametrize("grace", [0, 1, 30, 119, 300, 599])
def test_each_pod_gets_its_own_grace_before_the_deadline_which_is_met_within_five_seconds(
    env: Environment, grace: int
) -> None:
    instance = env.a_node("old", grace="10m")
    env.pod("web", "old", grace=grace)
    env.pod("log", "old", app="log", grace=30)
    env.budget("web", 1)
    env.budget("log", 1)
    env.delete("claim-old")
    end = env.now + timedelta(minutes=10)
    deleted_at: dict[str, datetime] = {}

    def watch(change: Change) -> None:
        if change.kind.kind == "Pod" and (change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]):
            deleted_at.setdefault(change.object["metadata"]["name"], env.now)

    env.store.subscribe(watch)
    env.run(until=lambda: env.states()[instance] != "running")
    late = timedelta(seconds=5)
    for pod, own in (("web", grace), ("log", 30)):
        assert timedelta() <= deleted_at[pod] - (end - timedelta(seconds=own)) <= late
    assert timedelta() <= env.now - end <= late


def test_a_pod_due_by_the_deadline_is_evicted_if_its_budget_allows_it_by_then(env: Environment) -> None:
    env.a_node("old", grace="2h")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    time_is_up = env.now + timedelta(hours=2) - timedelta(seconds=30)
    env.run(until=lambda: [at for at, _ in env.due] == [time_is_up])
    env.pod("web-again", "new")  # from now on the budget would allow it
    env.requests.clear()
    env.step()
    (pod,) = (p for p in env.pods() if p["metadata"]["name"] == "web")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert not [path for method, path in env.requests if method == "DELETE"]
    assert {e["type"] for e in env.events("Evicted")} == {"Normal"}


def test_a_do_not_disrupt_pod_blocks_its_node_until_it_completes_and_one_event_says_so(env: Environment) -> None:
    instance = env.a_node("old")
    env.pod("job", "old", protected="true")
    env.pod("web", "old")
    env.delete("claim-old")
    env.run(limit=timedelta(minutes=5))
    assert [p["metadata"]["name"] for p in env.pods() if "deletionTimestamp" not in p["metadata"]] == ["job"]
    env.stop("web")
    before = env.invocations
    env.run(limit=timedelta(days=2))
    assert env.invocations - before < 400
    assert env.states()[instance] == "running"
    (event,) = env.events("FailedDraining")
    assert event["count"] == 1
    assert "default/job has annotation karpenter.sh/do-not-disrupt" in event["message"]
    env.client.patch(PODS.path("job", namespace="default", subresource="status"), {"status": {"phase": "Succeeded"}})
    env.run()
    assert env.claims() == env.nodes() == []
    assert env.states()[instance] == "terminated"


def test_the_deadline_deletes_a_do_not_disrupt_pod_with_its_own_grace(env: Environment) -> None:
    instance = env.a_node("old", grace="1h")
    env.pod("job", "old", grace=120, protected="true")
    env.delete("claim-old")
    end = env.now + timedelta(hours=1)
    stopped: list[datetime] = []

    def watch(change: Change) -> None:
        if change.kind.kind == "Pod" and "deletionTimestamp" in change.object["metadata"]:
            stopped.append(env.now)

    env.store.subscribe(watch)
    env.run(until=lambda: env.states()[instance] != "running")
    assert timedelta() <= stopped[0] - (end - timedelta(seconds=120)) <= timedelta(seconds=5)
    assert timedelta() <= env.now - end <= timedelta(seconds=5)


def test_the_deadline_is_annotated_and_a_changed_annotation_is_followed(env: Environment) -> None:
    env.a_node("old", grace="10m")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    env.step()
    timestamp = env.stored_claim("claim-old")["metadata"]["annotations"][TERMINATION_TIMESTAMP]
    assert timestamp == "2026-11-21T12:10:00Z"
    earlier = {"metadata": {"annotations": {TERMINATION_TIMESTAMP: "2026-11-21T12:02:00Z"}}}
    env.client.patch("/apis/karpenter.sh/v1/nodeclaims/claim-old", earlier)
    env.run()
    assert env.claims() == []
    assert env.now - datetime.fromisoformat("2026-11-21T12:02:00Z") <= timedelta(seconds=5)


def test_fifty_drained_nodeclaims_are_terminated_with_one_call(env: Environment) -> None:
    for i in range(50):
        env.a_node(f"n-{i}")
    for i in range(50):
        env.client.delete(f"/apis/karpenter.sh/v1/nodeclaims/claim-n-{i}")
    env.calls.clear()
    env.send(hints.DRAIN, *(f"claim-n-{i}" for i in range(50)))
    env.step()
    assert Counter(env.calls) == {"DescribeInstances": 1, "TerminateInstances": 1}
    env.run()
    assert env.claims() == env.nodes() == []


def test_deleting_the_node_does_the_same_as_deleting_its_nodeclaim(env: Environment) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    env.client.delete("/api/v1/nodes/old")
    env.send(hints.NODES_DELETING, "old")

    def stop_all() -> None:
        for pod in env.pods():
            env.stop(pod["metadata"]["name"])

    env.after_each = stop_all
    env.run()
    assert env.claims() == env.nodes() == []
    assert env.states()[instance] == "terminated"
    assert [e["reason"] for e in env.events("Evicted")] == ["Evicted"]


def test_a_deleted_node_is_terminated_even_if_the_message_about_it_was_lost(env: Environment) -> None:
    instance = env.a_node("old")
    env.pod("web", "old")
    env.client.delete("/api/v1/nodes/old")

    def stop_all() -> None:
        for pod in env.pods():
            env.stop(pod["metadata"]["name"])

    env.after_each = stop_all
    env.settle(minutes=2)
    assert env.claims() == env.nodes() == []
    assert env.states()[instance] == "terminated"
    assert [e["reason"] for e in env.events("Evicted")] == ["Evicted"]


def test_a_draining_node_is_tainted_and_excluded_from_load_balancers(env: Environment) -> None:
    env.a_node("old")
    env.pod("web", "old")
    env.budget("web", 1)
    env.delete("claim-old")
    env.step()
    (node,) = env.nodes()
    assert node["metadata"]["labels"][names.EXCLUDE_BALANCERS] == "karpenter"
    assert {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"} in node["spec"]["taints"]
