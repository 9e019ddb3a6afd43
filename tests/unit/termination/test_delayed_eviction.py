"""Delayed eviction: which pods, until which replacement is registered, and for how long at most."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.lifecycle.claims.eviction_release import EvictionRelease, changed_delays
from shared.api import labels as names
from shared.api.kubernetes import Node, Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.termination import delayed_eviction
from shared.termination.delayed_eviction import ANNOTATION, BUDGET_MARGIN, NO_REPLACEMENT
from shared.termination.drain import DrainStep, drain_step

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DEADLINE = NOW + timedelta(seconds=105)


def claim(
    name: str = "old", *, delayed: str | None = None, deleted: bool = True, deadline: datetime | None = DEADLINE
) -> NodeClaim:
    annotations = {ANNOTATION: delayed} if delayed is not None else {}
    if deadline is not None:
        annotations[names.TERMINATION_TIMESTAMP] = deadline.isoformat()
    metadata = ObjectMeta(name=name, annotations=annotations, deletion_timestamp=NOW if deleted else None)
    return NodeClaim(metadata=metadata, status=NodeClaimStatus(provider_id=f"aws:///us-east-1a/i-{name}"))


def pod(name: str, *, node: str = "n", grace: int = 30, deleted: datetime | None = None, priority: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", deletion_timestamp=deleted),
        spec=PodSpec(node_name=node, termination_grace_period_seconds=grace, priority_class_name=priority),
    )


def step(nodeclaim: NodeClaim, *pods: Pod, after: float = 0) -> DrainStep:
    return drain_step(nodeclaim, pods, (), {}, now=NOW + timedelta(seconds=after))


def keys(pods: tuple[Pod, ...]) -> list[str]:
    return [p.metadata.name for p in pods]


def test_only_a_pod_that_waits_for_a_replacement_is_delayed() -> None:
    result = step(claim(delayed='{"new": ["default/a"]}'), pod("a"), pod("b"))
    assert (keys(result.delayed), keys(result.evict)) == (["a"], ["b"])
    assert "eviction of default/a is delayed until its replacement node registers" in result.waiting_for


def test_the_delay_ends_a_grace_period_and_the_budget_margin_before_the_deadline() -> None:
    old = claim(delayed='{"new": ["default/a"]}')
    last = 105 - 30 - BUDGET_MARGIN.total_seconds()
    assert step(old, pod("a")).requeue_by == NOW + timedelta(seconds=last)
    assert keys(step(old, pod("a"), after=last - 1).delayed) == ["a"]
    assert keys(step(old, pod("a"), after=last).evict) == ["a"]


def test_a_pod_whose_grace_fills_the_time_until_the_deadline_is_not_delayed() -> None:
    old = claim(delayed='{"new": ["default/patient", "default/short"]}')
    result = step(old, pod("patient", grace=95), pod("short", grace=5))
    assert (keys(result.evict), keys(result.delayed)) == (["patient"], ["short"])
    forced = step(old, pod("patient", grace=300))
    assert [(p.metadata.name, grace) for p, grace in forced.delete] == [("patient", 105)]


def test_without_a_deadline_the_delay_ends_after_five_minutes() -> None:
    old = claim(delayed='{"new": ["default/a"]}', deadline=None)
    assert keys(step(old, pod("a"), after=299).delayed) == ["a"]
    assert keys(step(old, pod("a"), after=300).evict) == ["a"]


def test_critical_pods_wait_for_delayed_pods() -> None:
    result = step(claim(delayed='{"new": ["default/a"]}'), pod("a"), pod("dns", priority="system-cluster-critical"))
    assert (keys(result.delayed), keys(result.evict)) == (["a"], [])


@pytest.mark.parametrize("invalid", ["", "[]", "new", '{"new": "default/a"}', '{"new": [7]}'])
def test_an_invalid_annotation_delays_no_pod(invalid: str) -> None:
    assert keys(step(claim(delayed=invalid), pod("a")).evict) == ["a"]


def test_delayed_pods_follow_from_the_scheduling_decision() -> None:
    pods = [pod("a"), pod("b"), pod("c"), pod("d", node="m"), pod("e", node="other")]
    delayed = delayed_eviction.delayed_by_node(
        pods, {"n", "m"}, arriving={"default/a": "new", "default/e": "new"}, unplaced={"default/b", "default/e"}
    )
    assert delayed == {"n": {"new": frozenset({"default/a"}), NO_REPLACEMENT: frozenset({"default/b"})}, "m": {}}


@given(
    st.dictionaries(st.text(max_size=5), st.frozensets(st.text(max_size=5), min_size=1), max_size=4).map(
        lambda d: {k: frozenset(v) for k, v in d.items()}
    )
)
def test_the_annotation_round_trips(delayed: dict[str, frozenset[str]]) -> None:
    written = delayed_eviction.encode(delayed)
    assert (written is None) == (not delayed)
    assert delayed_eviction.delayed_pods(claim(delayed=written)) == delayed


def node(nodeclaim: str) -> dict[str, Node]:
    return {f"aws:///us-east-1a/i-{nodeclaim}": Node(metadata=ObjectMeta(name=f"node-{nodeclaim}"))}


def test_a_registered_node_releases_only_the_pods_that_waited_for_its_nodeclaim() -> None:
    old = claim(delayed='{"new": ["default/a"], "late": ["default/b"], "": ["default/c"]}')
    claims = [old, claim("new", deleted=False), claim("late", deleted=False)]
    assert changed_delays(claims, node("old")) == {}
    assert changed_delays(claims, {**node("old"), **node("new")}) == {
        "old": {"late": frozenset({"default/b"}), NO_REPLACEMENT: frozenset({"default/c"})}
    }


@pytest.mark.parametrize("lost", [[], [claim("new", deleted=True)]])
def test_a_missing_or_deleted_replacement_releases_its_pods(lost: list[NodeClaim]) -> None:
    old = claim(delayed='{"new": ["default/a"]}')
    assert changed_delays([old, *lost], node("old")) == {"old": {}}


def test_each_drain_continues_when_its_replacement_registers_and_the_rest_at_the_end() -> None:
    waiting = [claim(f"old-{i}", delayed=f'{{"new-{i}": ["default/{i}"]}}') for i in range(7)]
    coming = [claim(f"new-{i}", deleted=False) for i in range(6)]
    nodes = {k: n for i in range(6) for k, n in node(f"new-{i}").items()}
    written: list[str] = []
    woken: list[list[str]] = []
    release = EvictionRelease([*waiting, *coming], nodes, write=lambda name, _: written.append(name), wake=woken.append)
    for replacement in coming:
        release.release_for(replacement.name)
        assert written[-1] == replacement.name.replace("new", "old")
    release.release_rest()
    assert written[-1] == "old-6"
    assert [name for names_ in woken for name in names_] == written
    assert len(woken) == 2
