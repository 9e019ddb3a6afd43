"""Which drains the relay wakes, when, and how seldom."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.blocked_drains import IMMINENT, INITIAL_BACKOFF, MAX_BACKOFF, WAKE_INTERVAL, BlockedDrains
from relay.watched_kinds import (
    WATCHED_KINDS,
    BudgetSpec,
    BudgetStatus,
    DoNotDisrupt,
    KindListed,
    NodeClaimStatus,
    ObjectChanged,
    PodMetadata,
    PodSpec,
    PodStatus,
    Watched,
    WatchedBudget,
    WatchedCondition,
    WatchedNodeClaim,
    WatchedPod,
)
from shared.api import labels as names
from shared.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from shared.cluster import resources
from shared.termination.requeue import REQUEUE_AT

if TYPE_CHECKING:
    from shared.cluster.resources import Resource

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LATER = timedelta(minutes=10)
OF = {kind: resource for resource, kind in WATCHED_KINDS.items()}


def claim(
    name: str = "c1",
    *,
    node: str = "n1",
    next_look: datetime | None = NOON + LATER,
    leaving: bool = True,
    begun: bool = True,
) -> WatchedNodeClaim:
    drained = [WatchedCondition(type="Drained", status="False")] if begun else []
    stamp = {} if next_look is None else {REQUEUE_AT: next_look.isoformat()}
    return WatchedNodeClaim(
        metadata=ObjectMeta(name=name, annotations=stamp, deletion_timestamp=NOON if leaving else None),
        status=NodeClaimStatus(node_name=node, conditions=drained),
    )


def pod(
    name: str = "web-1",
    *,
    node: str = "n1",
    app: str = "web",
    namespace: str = "default",
    phase: str = "Running",
    ready: bool = True,
    leaving: bool = False,
    protected: str = "",
) -> WatchedPod:
    return WatchedPod(
        metadata=PodMetadata(
            name=name,
            namespace=namespace,
            labels={"app": app},
            annotations=DoNotDisrupt(current=protected),
            deletion_timestamp=NOON if leaving else None,
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(phase=phase, conditions=[WatchedCondition(type="Ready", status=str(ready))]),
    )


def budget(
    allowed: int,
    *,
    name: str = "web",
    app: str = "web",
    namespace: str = "default",
    generation: int = 1,
    observed: int | None = None,
    operator: str = "In",
) -> WatchedBudget:
    selector = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator=operator, values=[app])])
    return WatchedBudget(
        metadata=ObjectMeta(name=name, namespace=namespace, uid="u", generation=generation),
        spec=BudgetSpec(selector=selector),
        status=BudgetStatus(
            disruptions_allowed=allowed, observed_generation=generation if observed is None else observed
        ),
    )


class Given:
    """BlockedDrains on a clock turned by hand. The drain of c1 on n1 sleeps, held by a budget over pod web-1 there."""

    def __init__(self, *more: Watched, held: bool = True) -> None:
        self.drains = BlockedDrains()
        self.now = NOON
        if held:
            self.see(pod(), budget(0), claim(next_look=None), claim())
        self.see(*more)

    def see(self, *objects: Watched) -> None:
        for obj in objects:
            self.drains.observe(ObjectChanged(resource=OF[type(obj)], object=obj))

    def lose(self, *objects: Watched) -> None:
        for obj in objects:
            self.drains.observe(ObjectChanged(resource=OF[type(obj)], object=obj, deleted=True))

    def relist(self, resource: Resource, *objects: Watched) -> None:
        self.drains.observe(KindListed(resource=resource, objects=objects))

    def woken(self, *, within: timedelta = WAKE_INTERVAL) -> list[str]:
        """Who is woken within so much time; afterwards it has passed."""
        end, woken = self.now + within, list[str]()
        while (due := self.drains.due(self.now)) is not None and due <= end:
            self.now = due
            woken += self.drains.take_unblocked(due)
        self.now = end
        return woken


def test_a_budget_that_has_room_again_wakes_the_drain_that_it_held_once() -> None:
    given_ = Given()
    assert given_.woken() == []
    given_.see(budget(1))
    assert given_.drains.due(given_.now) == given_.now
    assert given_.woken() == ["c1"]
    given_.see(budget(1), budget(2))
    assert given_.woken(within=LATER) == []


FREEING: list[tuple[str, Any]] = [
    ("the budget is deleted", lambda g: g.lose(budget(0))),
    ("the budget covers other pods now", lambda g: g.see(budget(0, app="db", generation=2))),
    ("the budget was deleted while nobody watched", lambda g: g.relist(resources.POD_DISRUPTION_BUDGETS)),
    ("the budget got room while nobody watched", lambda g: g.relist(resources.POD_DISRUPTION_BUDGETS, budget(1))),
    ("the pod is gone", lambda g: g.lose(pod())),
    ("the pod has finished", lambda g: g.see(pod(phase="Succeeded"))),
    ("the pod is gone while nobody watched", lambda g: g.relist(resources.PODS)),
    ("the pod runs elsewhere under the same name", lambda g: g.see(pod(node="n2"))),
    ("the pod isn't healthy any more", lambda g: g.see(pod(ready=False))),
    ("the pod has other labels", lambda g: g.see(pod(app="db"))),
]


@pytest.mark.parametrize("happens", [happens for _, happens in FREEING], ids=[what for what, _ in FREEING])
def test_whatever_may_let_a_pod_go_wakes_its_drain(happens: Any) -> None:  # noqa: ANN401 (a lambda of the table)
    given_ = Given()
    happens(given_)
    assert given_.woken() == ["c1"]


@pytest.mark.parametrize("annotation", [names.DO_NOT_DISRUPT, *names.LEGACY_DO_NOT_DISRUPT])
def test_a_pod_that_loses_its_protection_wakes_its_drain(annotation: str) -> None:
    said: dict[str, Any] = {"metadata": {"name": "job", "namespace": "default"}, "spec": {"nodeName": "n1"}}
    protected = {**said, "metadata": {**said["metadata"], "annotations": {annotation: "true", "a": "b"}}}
    given_ = Given(msgspec.convert(protected, WatchedPod))
    assert given_.woken() == []
    given_.see(msgspec.convert(said, WatchedPod))
    assert given_.woken() == ["c1"]


INDIFFERENT: list[tuple[str, Any]] = [
    ("a budget of another namespace", lambda g: g.see(budget(0, namespace="x"), budget(1, namespace="x"))),
    ("a budget for other pods", lambda g: g.see(budget(0, name="db", app="db"), budget(1, name="db", app="db"))),
    ("a budget whose room is of an older spec", lambda g: g.see(budget(1, observed=0))),
    ("a budget that is new", lambda g: g.see(budget(1, name="new"))),
    ("a pod elsewhere ends", lambda g: (g.see(pod("b", node="n2")), g.lose(pod("b", node="n2")))),
    ("a pod comes", lambda g: g.see(pod("b"))),
    ("a pod turns healthy", lambda g: g.see(pod("b", ready=False), pod("b"))),
    ("a pod begins to leave", lambda g: g.see(pod(leaving=True, ready=False))),
    ("a pod is as it was", lambda g: g.see(pod())),
]


@pytest.mark.parametrize("happens", [happens for _, happens in INDIFFERENT], ids=[w for w, _ in INDIFFERENT])
def test_what_lets_nobody_go_wakes_nobody(happens: Any) -> None:  # noqa: ANN401 (a lambda of the table)
    given_ = Given()
    happens(given_)
    assert given_.woken(within=LATER) == []


def test_a_budget_that_can_not_be_understood_wakes_rather_than_not() -> None:
    given_ = Given(budget(0, name="odd", operator="Near"), budget(1, name="odd", operator="Near"))
    assert given_.woken() == ["c1"]


def test_a_drain_that_is_looked_at_soon_anyway_is_not_woken_and_neither_is_a_claim_that_stays() -> None:
    given_ = Given(claim(next_look=NOON + IMMINENT), budget(1))
    assert given_.woken(within=LATER) == []
    given_ = Given(claim(leaving=False), budget(1))
    assert given_.woken(within=LATER) == []
    given_ = Given()
    given_.lose(claim())
    given_.see(budget(1))
    assert given_.woken(within=LATER) == []


def test_a_drain_that_waits_for_a_decision_before_it_begins_is_not_woken() -> None:
    given_ = Given(held=False)
    given_.see(pod(), claim(begun=False))
    given_.lose(pod())
    assert given_.woken(within=LATER) == []


def test_what_is_freed_during_a_look_that_may_not_have_seen_it_wakes_when_the_drain_goes_to_sleep_again() -> None:
    given_ = Given(claim(next_look=NOON), budget(1))
    assert given_.woken() == []
    given_.see(claim(next_look=given_.now + LATER))
    assert given_.woken() == ["c1"]


def test_a_relay_that_was_away_wakes_those_that_slept_meanwhile_once() -> None:
    given_ = Given(held=False)
    given_.relist(resources.NODE_CLAIMS, claim("c1"), claim("c2", node="n2"), claim("new", node="n3", next_look=None))
    assert given_.woken() == ["c1", "c2"]
    given_.relist(resources.NODE_CLAIMS, claim("c1"), claim("c2", node="n2"))
    assert given_.woken(within=LATER) == []


def test_drains_that_are_freed_within_seconds_of_each_other_are_woken_together() -> None:
    given_ = Given()
    names_ = [f"c{i:02}" for i in range(2, 50)]
    for name in names_:
        given_.see(claim(name, node=name, next_look=None), claim(name, node=name), pod(f"web-{name}", node=name))
    given_.lose(pod())
    assert given_.drains.take_unblocked(given_.now) == ("c1",)
    given_.see(budget(1))
    assert given_.drains.take_unblocked(given_.now + SECOND) == ()
    assert given_.drains.due(given_.now + SECOND) == given_.now + WAKE_INTERVAL
    assert given_.drains.take_unblocked(given_.now + WAKE_INTERVAL) == tuple(names_)


def test_a_budget_that_flaps_wakes_ever_less_often_but_each_minute() -> None:
    given_ = Given()
    times = []
    while given_.now < NOON + timedelta(hours=2):
        given_.see(budget(0), budget(1), claim(next_look=given_.now + LATER))
        if given_.woken(within=timedelta(seconds=0.6)):
            times.append(given_.now)
    assert 120 <= len(times) < 130
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) <= MAX_BACKOFF + SECOND
    assert min(gaps) >= INITIAL_BACKOFF - SECOND


def test_a_budget_whose_room_is_taken_each_time_never_waits_long() -> None:
    given_ = Given(*(pod(f"web-{i}") for i in range(2, 12)))
    for i in range(1, 11):
        given_.see(budget(1))
        assert given_.woken() == ["c1"]
        given_.see(pod(f"web-{i}", leaving=True), budget(0), claim(next_look=given_.now + SECOND))
        given_.lose(pod(f"web-{i}", leaving=True))
        assert given_.woken() == []
        given_.see(claim(next_look=given_.now + LATER))
        assert given_.woken() == ["c1"]  # the pod's end may be what the next one waits for


def test_a_budget_that_flapped_long_ago_wakes_at_once() -> None:
    given_ = Given()
    for _ in range(100):
        given_.see(budget(0), budget(1))
        given_.woken(within=10 * SECOND)
    given_.see(budget(0))
    given_.woken(within=2 * MAX_BACKOFF)
    given_.see(claim(next_look=given_.now + LATER), budget(1))
    assert given_.drains.due(given_.now) == given_.now


changes = st.one_of(
    st.builds(budget, st.integers(0, 1), generation=st.integers(1, 2)),
    st.builds(pod, st.sampled_from(["web-1", "web-2"]), node=st.sampled_from(["n1", "n2", ""]), ready=st.booleans()),
    st.builds(
        claim,
        st.sampled_from(["c1", "c2"]),
        node=st.sampled_from(["n1", "n2", ""]),
        next_look=st.sampled_from([None, NOON, NOON + SECOND * 9, NOON + LATER]),
        leaving=st.booleans(),
    ),
)


@given(st.lists(st.tuples(changes, st.booleans(), st.integers(0, 9)), max_size=40))
def test_whatever_changes_wake_ups_are_spaced_and_only_for_drains_that_sleep(
    happenings: list[tuple[Watched, bool, int]],
) -> None:
    given_ = Given(held=False)
    there: dict[str, WatchedNodeClaim] = {}
    last: datetime | None = None
    for obj, gone, seconds in happenings:
        (given_.lose if gone else given_.see)(obj)
        if isinstance(obj, WatchedNodeClaim):
            there.pop(obj.key, None)
            if not gone and obj.metadata.deletion_timestamp is not None:
                there[obj.key] = obj
        given_.now += seconds * SECOND
        due = given_.drains.due(given_.now)
        woken = given_.drains.take_unblocked(given_.now)
        assert bool(woken) == (due == given_.now)
        for name in woken:
            stamp = datetime.fromisoformat(there[name].metadata.annotations[REQUEUE_AT])
            assert stamp - given_.now > IMMINENT
        if woken:
            assert last is None or given_.now - last >= WAKE_INTERVAL
            last = given_.now
