"""What is counted from one read of the cluster to the next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.export.observed_changes import ObservedChanges
from shared.api import labels as names
from shared.api.kubernetes import Node, Pod, PodSpec, PodStatus
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool
from shared.base.struct import with_fields
from shared.disruption.disruption_queue import QueueEntry, with_queue_entry
from shared.snapshot import Snapshot

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DISRUPTED = ("spot", "when_empty_or_underutilized", "web", "underutilized", "graceful")
"""The labels' values of a disrupted claim."""
LABELS = {names.NODEPOOL: "web", names.CAPACITY_TYPE: "spot", names.ZONE: "us-east-1a"}
POOL = NodePool(metadata=ObjectMeta(name="web"))


def claim(name: str, *, replaces: str = "", deleted: bool = False) -> NodeClaim:
    annotations = {names.REPLACES: replaces} if replaces else {}
    return NodeClaim(
        metadata=ObjectMeta(
            name=name, uid=name, labels=LABELS, annotations=annotations, deletion_timestamp=NOW if deleted else None
        )
    )


def queued(node_claim: NodeClaim, *replacements: str, decision: str = "d1") -> NodeClaim:
    entry = QueueEntry(id=decision, reason="Underutilized", since=NOW, replacements=list(replacements))
    return with_queue_entry(node_claim, entry)


def node(name: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, uid=name, labels=LABELS))


def pod(name: str, *, ready_after: float | None = None) -> Pod:
    ready = [
        Condition(
            type="Ready",
            status="False" if ready_after is None else "True",
            last_transition_time=NOW + timedelta(seconds=ready_after or 0),
        )
    ]
    return Pod(metadata=ObjectMeta(name=name, uid=name, creation_timestamp=NOW), status=PodStatus(conditions=ready))


def counts(changes: ObservedChanges, name: str) -> dict[tuple[str, ...], float]:
    """The values that aren't zero, by the labels' values in order of the labels."""
    return {
        tuple(v for _, v in sorted(s.labels.items())): s.value
        for s in changes.samples()
        if f"{s.family.name}{s.suffix}" == name and s.value
    }


def observe(
    changes: ObservedChanges, *claims: NodeClaim, nodes: tuple[str, ...] = (), pods: tuple[Pod, ...] = ()
) -> None:
    changes.observe(
        Snapshot(taken_at=NOW, node_pools=(POOL,), node_claims=claims, nodes=tuple(node(n) for n in nodes), pods=pods)
    )


def test_what_was_there_before_the_export_is_not_counted() -> None:
    changes = ObservedChanges()
    observe(changes, claim("a"), queued(claim("b"), "c"), nodes=("a",), pods=(pod("p", ready_after=9),))
    assert not [s for s in changes.samples() if s.value]
    observe(changes, claim("a"), queued(claim("b"), "c"), nodes=("a",), pods=(pod("p", ready_after=9),))
    assert not [s for s in changes.samples() if s.value]


def test_a_command_with_two_nodes_is_one_decision_and_its_replacement_has_its_reason() -> None:
    changes = ObservedChanges()
    observe(changes, claim("a"), claim("b"))
    # annotated, and the command not executed yet
    observe(changes, queued(claim("a")), queued(claim("b")))
    assert counts(changes, "karpenter_nodeclaims_disrupted_total") == {}
    a, b = queued(claim("a"), "c"), queued(claim("b"), "c")
    for _ in range(2):
        observe(changes, a, b, claim("c", replaces="d1"))
    assert counts(changes, "karpenter_nodeclaims_disrupted_total") == {DISRUPTED: 2}
    assert counts(changes, "karpenter_voluntary_disruption_decisions_total") == {("replace", "underutilized"): 1}
    assert counts(changes, "karpenter_nodeclaims_created_total") == {("web", "underutilized"): 1}
    observe(changes, claim("c", replaces="d1"))
    assert counts(changes, "karpenter_nodeclaims_terminated_total") == {("spot", "web", "us-east-1a"): 2}


@pytest.mark.parametrize(
    ("grace_period", "reason", "policy", "mode"),
    [
        (None, "Underutilized", "when_empty_or_underutilized", "graceful"),
        ("5m", "Empty", "when_empty_or_underutilized", "eventual"),
        ("0s", "Drifted", "", "forceful"),
    ],
)
def test_pods_that_have_to_move_are_counted_with_the_policy_and_the_bound_of_the_drain(
    grace_period: str | None, reason: str, policy: str, mode: str
) -> None:
    changes = ObservedChanges()
    plain = claim("a")
    running = with_fields(
        plain,
        spec=with_fields(plain.spec, termination_grace_period=grace_period),
        status=with_fields(plain.status, node_name="node-a"),
    )
    pods = tuple(with_fields(pod(name), spec=PodSpec(node_name="node-a")) for name in ("p", "q"))
    observe(changes, running, pods=pods)
    entry = QueueEntry(id="d1", reason=reason, since=NOW, replacements=["c"])
    observe(changes, with_queue_entry(running, entry), pods=pods)
    labels = tuple(value for value in ("spot", policy, "web", reason.lower(), mode) if value)  # as Prometheus: no ""
    assert counts(changes, "karpenter_nodeclaims_disrupted_total") == {labels: 1}
    assert counts(changes, "karpenter_pods_disruption_initiated_total") == {labels: 2}


def test_a_deletion_without_a_replacement_is_a_delete_decision() -> None:
    changes = ObservedChanges()
    observe(changes, claim("a"))
    observe(changes, queued(claim("a", deleted=True)))
    assert counts(changes, "karpenter_voluntary_disruption_decisions_total") == {("delete", "underutilized"): 1}


def test_a_node_that_goes_before_its_replacement_is_a_terminate_first_decision_with_its_reason() -> None:
    changes = ObservedChanges()
    observe(changes, claim("a"))
    entry = QueueEntry(id="d1", reason="Drifted", since=NOW, terminate_first="static-at-limit")
    observe(changes, with_queue_entry(claim("a", deleted=True), entry))
    assert counts(changes, "karpenter_voluntary_disruption_decisions_total") == {("terminate-first", "drifted"): 1}
    total = "karpenter_voluntary_disruption_terminate_first_decisions_total"
    assert counts(changes, total) == {("web", "drifted", "static-at-limit"): 1}


def test_a_claim_that_is_disrupted_again_after_a_rollback_counts_again() -> None:
    changes = ObservedChanges()
    observe(changes, claim("a"))
    observe(changes, queued(claim("a"), "c"))
    observe(changes, claim("a"))
    observe(changes, queued(claim("a"), "d", decision="d2"))
    assert counts(changes, "karpenter_nodeclaims_disrupted_total") == {DISRUPTED: 2}


def test_nodes_that_join_and_leave_are_counted_by_node_pool() -> None:
    changes = ObservedChanges()
    observe(changes, nodes=("a",))
    observe(changes, nodes=("a", "b", "c"))
    observe(changes, nodes=("c",))
    assert counts(changes, "karpenter_nodes_created_total") == {("web",): 2}
    assert counts(changes, "karpenter_nodes_terminated_total") == {("web",): 2}


def test_a_pod_starts_once_even_if_it_is_not_ready_for_a_while_later() -> None:
    changes = ObservedChanges()
    observe(changes, pods=(pod("waiting"), pod("running", ready_after=1)))
    later = (pod("waiting", ready_after=40), pod("running", ready_after=1), pod("new", ready_after=20))
    observe(changes, pods=later)
    observe(changes, pods=(pod("waiting"), pod("running"), later[2]))
    observe(changes, pods=(pod("waiting", ready_after=300), pod("running", ready_after=300), later[2]))
    assert counts(changes, "karpenter_pods_startup_duration_seconds_count") == {(): 2}
    assert counts(changes, "karpenter_pods_startup_duration_seconds_sum") == {(): 60}
    quantiles = {s.labels["quantile"]: s.value for s in changes.samples() if "quantile" in s.labels}
    assert quantiles == {"0": 20, "0.5": 20, "0.9": 40, "0.99": 40, "1": 40}
    changes.observe(Snapshot(taken_at=NOW + timedelta(hours=1)))
    assert not [s for s in changes.samples() if "quantile" in s.labels]
    assert counts(changes, "karpenter_pods_startup_duration_seconds_count") == {(): 2}


@pytest.mark.parametrize("name", ["karpenter_nodeclaims_created_total", "karpenter_nodes_terminated_total"])
def test_counters_of_a_node_pool_begin_at_zero(name: str) -> None:
    changes = ObservedChanges()
    observe(changes)
    assert [s.value for s in changes.samples() if s.family.name == name] == [0]
