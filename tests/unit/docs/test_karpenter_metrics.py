"""Each metric of Karpenter's reference is emitted by its name, or docs/fields/metrics.yaml has its answer."""

from __future__ import annotations

from collections import Counter

from docs import karpenter_metrics_page

LEDGER = karpenter_metrics_page.ledger()
EMITTED = karpenter_metrics_page.emitted()
ABSENT = [name for entry in LEDGER["absent"] for name in entry["names"]]


def test_every_name_has_exactly_one_answer() -> None:
    answers = Counter([*(EMITTED.keys() & set(LEDGER["names"])), *LEDGER["renamed"], *ABSENT])
    assert answers == Counter(LEDGER["names"])


def test_a_metric_that_is_renamed_is_emitted_by_its_other_name() -> None:
    assert {name for aliases in LEDGER["renamed"].values() for name in aliases} <= EMITTED.keys()


def test_a_reason_is_a_sentence() -> None:
    assert [entry["reason"] for entry in LEDGER["absent"] if not entry["reason"].endswith(".")] == []


def test_what_dashboards_show_has_karpenters_names() -> None:
    shown = {
        "karpenter_nodes_created_total",
        "karpenter_nodes_terminated_total",
        "karpenter_nodeclaims_created_total",
        "karpenter_nodeclaims_terminated_total",
        "karpenter_nodeclaims_disrupted_total",
        "karpenter_nodeclaims_termination_duration_seconds",
        "karpenter_nodes_termination_duration_seconds",
        "karpenter_pods_startup_duration_seconds",
        "karpenter_pods_bound_duration_seconds",
        "karpenter_nodepools_usage",
        "karpenter_nodepools_limit",
        "karpenter_nodepools_allowed_disruptions",
        "karpenter_scheduler_scheduling_duration_seconds",
        "karpenter_interruption_received_messages_total",
        "karpenter_interruption_message_queue_duration_seconds",
        "karpenter_voluntary_disruption_decisions_total",
        "karpenter_voluntary_disruption_eligible_nodes",
    }
    assert shown <= EMITTED.keys()
