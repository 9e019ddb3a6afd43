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
    from tests.integration.termination.conftest import Rig

TERMINATION_TIMESTAMP = names.TERMINATION_TIMESTAMP


def test_pods_are_evicted_in_the_fewest_rounds_that_their_budgets_allow(rig: Rig) -> None:
    min_available = {"a": 7, "b": 8, "c": 9}
    instance = rig.a_node("old")
    for app, count in min_available.items():
        for i in range(10):
            rig.pod(f"{app}-{i}", "old", app=app)
        rig.budget(app, count)
    seen: list[str] = []

    def watch(change: Change) -> None:
        assert all(ready_by_app(rig)[app] >= count for app, count in min_available.items())
        if change.type == "DELETED" and change.kind.kind in ("Pod", "Node", "NodeClaim"):
            seen.append(change.kind.kind)

    def kubelets() -> None:
        """Pods that were evicted stop, and others are ready elsewhere, before the next reconcile."""
        if rig.states()[instance] == "terminated" and "terminated" not in seen:
            seen.append("terminated")
        for pod in rig.pods():
            if "deletionTimestamp" in pod["metadata"]:
                name, app = pod["metadata"]["name"], pod["metadata"]["labels"]["app"]
                rig.stop(name)
                rig.pod(f"{name}-again", "new", app=app)

    rig.store.subscribe(watch)
    rig.after_each = kubelets
    rig.delete("claim-old")
    rig.run()
    # the strictest budget allows one eviction at a time
    assert rig.evicting_invocations == 10
    assert seen == ["Pod"] * 30 + ["terminated", "Node", "NodeClaim"]
    assert [p["spec"]["nodeName"] for p in rig.pods()] == ["new"] * 30


def test_a_drain_blocked_for_two_days_costs_little_records_one_event_and_ends_on_time(rig: Rig) -> None:
    rig.a_node("old", grace="48h")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    start = rig.now
    gone: list[datetime] = []
    rig.store.subscribe(lambda c: gone.append(rig.now) if c.type == "DELETED" and c.kind.kind == "Pod" else None)
    rig.run(until=lambda: bool(gone))
    assert rig.invocations < 400
    assert timedelta() <= gone[0] - (start + timedelta(hours=48)) <= timedelta(seconds=5)
    (event,) = rig.events("FailedDraining")
    assert event["count"] == 1
    blocked = "Failed to drain node, pod default/web can't be evicted now: PodDisruptionBudget web allows no disruption"
    assert event["message"] == blocked
    rig.run()
    assert rig.claims() == rig.nodes() == []


@pytest.mark.parametrize(
    ("grace", "annotated", "why"),
    [
        ("30s", "", "the terminationGracePeriod of node old ends"),
        ("", "2026-11-21T12:00:30Z", "node old must be drained by 12:00:30 UTC"),
        ("10m", "2026-11-21T12:00:30Z", "node old must be drained by 12:00:30 UTC"),
    ],
)
def test_the_event_of_a_deleted_pod_says_which_deadline_it_met(rig: Rig, grace: str, annotated: str, why: str) -> None:
    rig.a_node("old", grace=grace)
    rig.pod("web", "old", grace=10)
    rig.budget("web", 1)
    if annotated:
        annotations = {names.TERMINATION_TIMESTAMP: annotated}
        rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"annotations": annotations}})
    rig.delete("claim-old")
    rig.run(until=lambda: bool(rig.events("Evicted")))
    (event,) = rig.events("Evicted")
    assert event["message"] == f"Deleted pod: {why}"


def test_a_pod_with_two_budgets_blocks_only_its_own_node_and_an_event_says_so(rig: Rig) -> None:
    for name in ("old", "other"):
        rig.a_node(name)
    rig.pod("web", "old")
    rig.pod("api", "old", app="api")
    rig.pod("else", "other", app="else")
    rig.budget("web", 0)
    rig.budget("web", 0, name="web-again")

    def kubelets() -> None:
        for pod in rig.pods():
            if "deletionTimestamp" in pod["metadata"]:
                rig.stop(pod["metadata"]["name"])

    rig.after_each = kubelets
    for claim in ("claim-old", "claim-other"):
        rig.delete(claim)
    rig.run(until=lambda: rig.invocations >= 8)
    assert [p["metadata"]["name"] for p in rig.pods()] == ["web"]
    assert [c["metadata"]["name"] for c in rig.claims()] == ["claim-old"]
    (event,) = rig.events("FailedDraining")
    assert "default/web can't be evicted" in event["message"]
    assert "more than one PodDisruptionBudget" in event["message"]
    rig.client.delete(POD_DISRUPTION_BUDGETS.path("web-again", namespace="default"))
    rig.run()
    assert rig.pods() == rig.claims() == rig.nodes() == []


def test_early_messages_cost_one_request_and_write_nothing(rig: Rig) -> None:
    rig.a_node("old")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    for _ in range(60):
        rig.step()
    rig.requests.clear()
    waiting = list(rig.due)
    rig.turn(1)
    for detail_type in (hints.DRAIN, hints.NODE_CLAIMS_DELETING):
        rig.send(detail_type, "claim-old")
        rig.deliver(rig.due.pop()[1])
    assert [method for method, _ in rig.requests] == ["GET", "GET"]
    assert rig.due == waiting


def blocked_for_long(rig: Rig) -> None:
    """A drain that a budget has blocked long enough that its requeue time is minutes ahead."""
    rig.a_node("old")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    rig.run(until=lambda: rig.due[0][0] - rig.now > timedelta(minutes=5))
    rig.turn(1)


def test_an_unblocked_drain_continues_at_once_and_remains_one_chain_of_reconciles(rig: Rig) -> None:
    blocked_for_long(rig)
    rig.pod("web-again", "new")  # from now on the budget allows it
    unblocked = rig.now
    rig.send(hints.DRAINS_UNBLOCKED, "claim-old")
    rig.step()
    assert rig.now == unblocked
    (pod,) = (p for p in rig.pods() if p["metadata"]["name"] == "web")
    assert "deletionTimestamp" in pod["metadata"]
    rig.stop("web")
    rig.run(until=lambda: not rig.claims())
    assert rig.now - unblocked < timedelta(seconds=30)
    rig.run()
    assert rig.due == []


def test_a_drain_that_is_still_blocked_keeps_its_requeue_time_and_records_no_event(rig: Rig) -> None:
    blocked_for_long(rig)
    waiting, before = list(rig.due), rig.stored_claim("claim-old")
    evictions_before = evictions(rig)
    rig.send(hints.DRAINS_UNBLOCKED, "claim-old", "nobody")
    rig.send(hints.DRAINS_UNBLOCKED, "claim-old")
    rig.step()
    assert evictions(rig) == evictions_before + 1
    assert rig.due == waiting
    after = rig.stored_claim("claim-old")
    for claim in (before, after):
        claim["metadata"] = {k: v for k, v in claim["metadata"].items() if k != "resourceVersion"}
    assert after == before
    assert len(rig.events("FailedDraining")) == 1


def test_volumes_are_requeued_by_the_time_since_the_drain_not_since_the_deletion(rig: Rig) -> None:
    blocked_for_long(rig)
    attached = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "va"},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": "old", "source": {"persistentVolumeName": "pv"}},
    }
    rig.client.create(VOLUME_ATTACHMENTS.path(), attached)
    rig.stop("web")
    rig.send(hints.DRAINS_UNBLOCKED, "claim-old")
    detached_at, invocations = rig.now + timedelta(seconds=60), rig.invocations
    rig.run(until=lambda: rig.due[0][0] > detached_at)
    rig.now = detached_at
    rig.client.delete(VOLUME_ATTACHMENTS.path("va"))
    rig.run(until=lambda: not rig.claims())
    assert rig.now - detached_at < timedelta(seconds=15)
    assert rig.invocations - invocations < 60


def test_an_unblocked_message_does_not_begin_a_drain_before_its_requeue_time(rig: Rig) -> None:
    rig.a_node("old")
    rig.pod("web", "old")
    stamp = {"metadata": {"annotations": {requeue.REQUEUE_AT: (rig.now + timedelta(seconds=15)).isoformat()}}}
    rig.client.patch(NODE_CLAIMS.path("claim-old"), stamp)
    rig.client.delete(NODE_CLAIMS.path("claim-old"))
    rig.send(hints.DRAINS_UNBLOCKED, "claim-old")
    rig.step()
    assert rig.due == []
    assert evictions(rig) == 0
    rig.turn(15)
    rig.send(hints.NODE_CLAIMS_DELETING, "claim-old")
    rig.step()
    assert evictions(rig) == 1


def test_an_unblocked_message_about_a_nodeclaim_that_is_not_deleted_is_ignored(rig: Rig) -> None:
    rig.a_node("old")
    rig.pod("web", "old")
    before = rig.stored_claim("claim-old"), rig.nodes(), rig.pods()
    rig.send(hints.DRAINS_UNBLOCKED, "claim-old")
    rig.step()
    assert (rig.stored_claim("claim-old"), rig.nodes(), rig.pods()) == before
    assert rig.due == []


def test_lifecycle_resumes_only_drains_whose_requeue_time_is_overdue(rig: Rig) -> None:
    rig.a_node("old")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    for _ in range(100):
        rig.step()
    assert len(rig.due) == 1
    rig.reconcile()
    assert len(rig.due) == 1
    rig.due.clear()  # the message is lost, and with it the chain of reconciles
    rig.turn(3600)
    rig.reconcile()
    assert len(rig.due) == 1
    rig.step()
    assert len(rig.due) == 1


@pytest.mark.parametrize("grace", [0, 1, 30, 119, 300, 599])
def test_each_pod_gets_its_own_grace_before_the_deadline_which_is_met_within_five_seconds(rig: Rig, grace: int) -> None:
    instance = rig.a_node("old", grace="10m")
    rig.pod("web", "old", grace=grace)
    rig.pod("log", "old", app="log", grace=30)
    rig.budget("web", 1)
    rig.budget("log", 1)
    rig.delete("claim-old")
    end = rig.now + timedelta(minutes=10)
    deleted_at: dict[str, datetime] = {}

    def watch(change: Change) -> None:
        if change.kind.kind == "Pod" and (change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]):
            deleted_at.setdefault(change.object["metadata"]["name"], rig.now)

    rig.store.subscribe(watch)
    rig.run(until=lambda: rig.states()[instance] != "running")
    late = timedelta(seconds=5)
    for pod, own in (("web", grace), ("log", 30)):
        assert timedelta() <= deleted_at[pod] - (end - timedelta(seconds=own)) <= late
    assert timedelta() <= rig.now - end <= late


def test_a_pod_due_by_the_deadline_is_evicted_if_its_budget_allows_it_by_then(rig: Rig) -> None:
    rig.a_node("old", grace="2h")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    time_is_up = rig.now + timedelta(hours=2) - timedelta(seconds=30)
    rig.run(until=lambda: [at for at, _ in rig.due] == [time_is_up])
    rig.pod("web-again", "new")  # from now on the budget would allow it
    rig.requests.clear()
    rig.step()
    (pod,) = (p for p in rig.pods() if p["metadata"]["name"] == "web")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert not [path for method, path in rig.requests if method == "DELETE"]
    assert {e["type"] for e in rig.events("Evicted")} == {"Normal"}


def test_a_do_not_disrupt_pod_blocks_its_node_until_it_completes_and_one_event_says_so(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("job", "old", protected="true")
    rig.pod("web", "old")
    rig.delete("claim-old")
    rig.run(limit=timedelta(minutes=5))
    assert [p["metadata"]["name"] for p in rig.pods() if "deletionTimestamp" not in p["metadata"]] == ["job"]
    rig.stop("web")
    before = rig.invocations
    rig.run(limit=timedelta(days=2))
    assert rig.invocations - before < 400
    assert rig.states()[instance] == "running"
    (event,) = rig.events("FailedDraining")
    assert event["count"] == 1
    assert "default/job has annotation karpenter.sh/do-not-disrupt" in event["message"]
    rig.client.patch(PODS.path("job", namespace="default", subresource="status"), {"status": {"phase": "Succeeded"}})
    rig.run()
    assert rig.claims() == rig.nodes() == []
    assert rig.states()[instance] == "terminated"


def test_the_deadline_deletes_a_do_not_disrupt_pod_with_its_own_grace(rig: Rig) -> None:
    instance = rig.a_node("old", grace="1h")
    rig.pod("job", "old", grace=120, protected="true")
    rig.delete("claim-old")
    end = rig.now + timedelta(hours=1)
    stopped: list[datetime] = []

    def watch(change: Change) -> None:
        if change.kind.kind == "Pod" and "deletionTimestamp" in change.object["metadata"]:
            stopped.append(rig.now)

    rig.store.subscribe(watch)
    rig.run(until=lambda: rig.states()[instance] != "running")
    assert timedelta() <= stopped[0] - (end - timedelta(seconds=120)) <= timedelta(seconds=5)
    assert timedelta() <= rig.now - end <= timedelta(seconds=5)


def test_the_deadline_is_annotated_and_a_changed_annotation_is_followed(rig: Rig) -> None:
    rig.a_node("old", grace="10m")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    rig.step()
    timestamp = rig.stored_claim("claim-old")["metadata"]["annotations"][TERMINATION_TIMESTAMP]
    assert timestamp == "2026-11-21T12:10:00Z"
    earlier = {"metadata": {"annotations": {TERMINATION_TIMESTAMP: "2026-11-21T12:02:00Z"}}}
    rig.client.patch("/apis/karpenter.sh/v1/nodeclaims/claim-old", earlier)
    rig.run()
    assert rig.claims() == []
    assert rig.now - datetime.fromisoformat("2026-11-21T12:02:00Z") <= timedelta(seconds=5)


def test_fifty_drained_nodeclaims_are_terminated_with_one_call(rig: Rig) -> None:
    for i in range(50):
        rig.a_node(f"n-{i}")
    for i in range(50):
        rig.client.delete(f"/apis/karpenter.sh/v1/nodeclaims/claim-n-{i}")
    rig.calls.clear()
    rig.send(hints.DRAIN, *(f"claim-n-{i}" for i in range(50)))
    rig.step()
    assert Counter(rig.calls) == {"DescribeInstances": 1, "TerminateInstances": 1}
    rig.run()
    assert rig.claims() == rig.nodes() == []


def test_deleting_the_node_does_the_same_as_deleting_its_nodeclaim(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    rig.client.delete("/api/v1/nodes/old")
    rig.send(hints.NODES_DELETING, "old")

    def stop_all() -> None:
        for pod in rig.pods():
            rig.stop(pod["metadata"]["name"])

    rig.after_each = stop_all
    rig.run()
    assert rig.claims() == rig.nodes() == []
    assert rig.states()[instance] == "terminated"
    assert [e["reason"] for e in rig.events("Evicted")] == ["Evicted"]


def test_a_deleted_node_is_terminated_even_if_the_message_about_it_was_lost(rig: Rig) -> None:
    instance = rig.a_node("old")
    rig.pod("web", "old")
    rig.client.delete("/api/v1/nodes/old")

    def stop_all() -> None:
        for pod in rig.pods():
            rig.stop(pod["metadata"]["name"])

    rig.after_each = stop_all
    rig.settle(minutes=2)
    assert rig.claims() == rig.nodes() == []
    assert rig.states()[instance] == "terminated"
    assert [e["reason"] for e in rig.events("Evicted")] == ["Evicted"]


def test_a_draining_node_is_tainted_and_excluded_from_load_balancers(rig: Rig) -> None:
    rig.a_node("old")
    rig.pod("web", "old")
    rig.budget("web", 1)
    rig.delete("claim-old")
    rig.step()
    (node,) = rig.nodes()
    assert node["metadata"]["labels"][names.EXCLUDE_BALANCERS] == "karpenter"
    assert {"key": names.DISRUPTED_TAINT, "effect": "NoSchedule"} in node["spec"]["taints"]
