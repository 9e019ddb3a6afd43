"""Pods that stay until there is a place for them: who, for what, and for how long at most."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.lifecycle.eviction_release import EvictionRelease, changed_delays
from functions.termination.drain import DrainStep, drain_step
from shared.api import labels as names
from shared.api.kubernetes import Node, Pod, PodSpec
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.termination import delayed_eviction
from shared.termination.delayed_eviction import ANNOTATION, BUDGET_MARGIN, NO_REPLACEMENT

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
END = NOW + timedelta(seconds=105)


def claim(name: str = "old", *, stay: str | None = None, deleted: bool = True, end: datetime | None = END) -> NodeClaim:
    annotations = {ANNOTATION: stay} if stay is not None else {}
    if end is not None:
        annotations[names.TERMINATION_TIMESTAMP] = end.isoformat()
    metadata = ObjectMeta(name=name, annotations=annotations, deletion_timestamp=NOW if deleted else None)
    return NodeClaim(metadata=metadata, status=NodeClaimStatus(provider_id=f"aws:///us-east-1a/i-{name}"))


def pod(name: str, *, node: str = "n", grace: int = 30, deleted: datetime | None = None, priority: str = "") -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", deletion_timestamp=deleted),
        spec=PodSpec(node_name=node, termination_grace_period_seconds=grace, priority_class_name=priority),
    )


def step(of: NodeClaim, *pods: Pod, after: float = 0) -> DrainStep:
    return drain_step(of, pods, (), {}, now=NOW + timedelta(seconds=after))


def keys(pods: tuple[Pod, ...]) -> list[str]:
    return [p.metadata.name for p in pods]


def test_a_pod_that_waits_for_a_place_stays_and_one_that_has_a_place_leaves() -> None:
    now = step(claim(stay='{"new": ["default/a"]}'), pod("a"), pod("b"))
    assert (keys(now.delayed), keys(now.evict)) == (["a"], ["b"])
    assert "eviction of default/a is delayed until its replacement node registers" in now.waiting_for


def test_it_stays_no_longer_than_its_grace_and_some_turns_of_its_budget_fit_before_the_deadline() -> None:
    old = claim(stay='{"new": ["default/a"]}')
    last = 105 - 30 - BUDGET_MARGIN.total_seconds()
    assert step(old, pod("a")).requeue_by == NOW + timedelta(seconds=last)
    assert keys(step(old, pod("a"), after=last - 1).delayed) == ["a"]
    assert keys(step(old, pod("a"), after=last).evict) == ["a"]


def test_a_pod_with_a_grace_that_fills_the_notice_leaves_at_once() -> None:
    old = claim(stay='{"new": ["default/patient", "default/short"]}')
    now = step(old, pod("patient", grace=95), pod("short", grace=5))
    assert (keys(now.evict), keys(now.delayed)) == (["patient"], ["short"])
    forced = step(old, pod("patient", grace=300))
    assert [(p.metadata.name, grace) for p, grace in forced.delete] == [("patient", 105)]


def test_without_a_deadline_it_stays_for_some_minutes_at_most() -> None:
    old = claim(stay='{"new": ["default/a"]}', end=None)
    assert keys(step(old, pod("a"), after=299).delayed) == ["a"]
    assert keys(step(old, pod("a"), after=300).evict) == ["a"]


def test_critical_pods_wait_for_those_that_stay() -> None:
    now = step(claim(stay='{"new": ["default/a"]}'), pod("a"), pod("dns", priority="system-cluster-critical"))
    assert (keys(now.delayed), keys(now.evict)) == (["a"], [])


@pytest.mark.parametrize("garbled", ["", "[]", "new", '{"new": "default/a"}', '{"new": [7]}'])
def test_what_nobody_can_read_holds_nobody(garbled: str) -> None:
    assert keys(step(claim(stay=garbled), pod("a")).evict) == ["a"]


def test_who_stays_follows_from_the_decision() -> None:
    pods = [pod("a"), pod("b"), pod("c"), pod("d", node="m"), pod("e", node="other")]
    found = delayed_eviction.delayed_by_node(
        pods, {"n", "m"}, arriving={"default/a": "new", "default/e": "new"}, unplaced={"default/b", "default/e"}
    )
    assert found == {"n": {"new": frozenset({"default/a"}), NO_REPLACEMENT: frozenset({"default/b"})}, "m": {}}


@given(
    st.dictionaries(st.text(max_size=5), st.frozensets(st.text(max_size=5), min_size=1), max_size=4).map(
        lambda d: {k: frozenset(v) for k, v in d.items()}
    )
)
def test_what_is_written_is_read(found: dict[str, frozenset[str]]) -> None:
    written = delayed_eviction.encode(found)
    assert (written is None) == (not found)
    assert delayed_eviction.delayed_pods(claim(stay=written)) == found


def node(of: str) -> dict[str, Node]:
    return {f"aws:///us-east-1a/i-{of}": Node(metadata=ObjectMeta(name=f"node-{of}"))}


def test_a_node_that_joins_lets_go_those_who_stayed_for_its_claim_and_nobody_else() -> None:
    old = claim(stay='{"new": ["default/a"], "late": ["default/b"], "": ["default/c"]}')
    claims = [old, claim("new", deleted=False), claim("late", deleted=False)]
    assert changed_delays(claims, node("old")) == {}
    assert changed_delays(claims, {**node("old"), **node("new")}) == {
        "old": {"late": frozenset({"default/b"}), NO_REPLACEMENT: frozenset({"default/c"})}
    }


@pytest.mark.parametrize("lost", [[], [claim("new", deleted=True)]])
def test_nobody_stays_for_a_claim_that_comes_to_nothing(lost: list[NodeClaim]) -> None:
    old = claim(stay='{"new": ["default/a"]}')
    assert changed_delays([old, *lost], node("old")) == {"old": {}}


def test_each_drain_goes_on_when_its_own_node_is_registered_and_those_without_one_at_the_end() -> None:
    waiting = [claim(f"old-{i}", stay=f'{{"new-{i}": ["default/{i}"]}}') for i in range(7)]
    coming = [claim(f"new-{i}", deleted=False) for i in range(6)]
    nodes = {k: n for i in range(6) for k, n in node(f"new-{i}").items()}
    written: list[str] = []
    told: list[list[str]] = []
    release = EvictionRelease([*waiting, *coming], nodes, write=lambda name, _: written.append(name), wake=told.append)
    for one in coming:
        release.release_for(one.name)
        assert written[-1] == one.name.replace("new", "old")
    release.release_rest()
    assert written[-1] == "old-6"
    assert [name for names_ in told for name in names_] == written
    assert len(told) == 2
