"""Which blocked drains the relay wakes, and when."""

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
    next_attempt: datetime | None = NOON + LATER,
    terminating: bool = True,
    started: bool = True,
) -> WatchedNodeClaim:
    drained = [WatchedCondition(type="Drained", status="False")] if started else []
    stamp = {} if next_attempt is None else {REQUEUE_AT: next_attempt.isoformat()}
    return WatchedNodeClaim(
        metadata=ObjectMeta(name=name, annotations=stamp, deletion_timestamp=NOON if terminating else None),
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
    terminating: bool = False,
    do_not_disrupt: str = "",
) -> WatchedPod:
    return WatchedPod(
        metadata=PodMetadata(
            name=name,
            namespace=namespace,
            labels={"app": app},
            annotations=DoNotDisrupt(current=do_not_disrupt),
            deletion_timestamp=NOON if terminating else None,
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
    """BlockedDrains on a clock that tests set; a budget over pod web-1 blocks the drain of c1 on n1."""

    def __init__(self, *more: Watched, blocked: bool = True) -> None:
        self.drains = BlockedDrains()
        self.now = NOON
        if blocked:
            self.observe(pod(), budget(0), claim(next_attempt=None), claim())
        self.observe(*more)

    def observe(self, *objects: Watched) -> None:
        for obj in objects:
            self.drains.observe(ObjectChanged(resource=OF[type(obj)], object=obj))

    def delete(self, *objects: Watched) -> None:
        for obj in objects:
            self.drains.observe(ObjectChanged(resource=OF[type(obj)], object=obj, deleted=True))

    def relist(self, resource: Resource, *objects: Watched) -> None:
        self.drains.observe(KindListed(resource=resource, objects=objects))

    def woken(self, *, within: timedelta = WAKE_INTERVAL) -> list[str]:
        """The drains woken within that time; the clock is at its end afterwards."""
        end, woken = self.now + within, list[str]()
        while (due := self.drains.due(self.now)) is not None and due <= end:
            self.now = due
            woken += self.drains.take_unblocked(due)
        self.now = end
        return woken


def test_a_budget_that_allows_a_disruption_again_wakes_its_drain_once() -> None:
    given_ = Given()
    assert given_.woken() == []
    given_.observe(budget(1))
    assert given_.drains.due(given_.now) == given_.now
    assert given_.woken() == ["c1"]
    given_.observe(budget(1), budget(2))
    assert given_.woken(within=LATER) == []


UNBLOCKING: list[tuple[str, Any]] = [
    ("the budget is deleted", lambda g: g.delete(budget(0))),
    ("the budget covers other pods now", lambda g: g.observe(budget(0, app="db", generation=2))),
    ("the budget was deleted while the watch was broken", lambda g: g.relist(resources.POD_DISRUPTION_BUDGETS)),
    (
        "the budget allowed a disruption while the watch was broken",
        lambda g: g.relist(resources.POD_DISRUPTION_BUDGETS, budget(1)),
    ),
    ("the pod was deleted", lambda g: g.delete(pod())),
    ("the pod has finished", lambda g: g.observe(pod(phase="Succeeded"))),
    ("the pod was deleted while the watch was broken", lambda g: g.relist(resources.PODS)),
    ("a pod of the same name runs on another node", lambda g: g.observe(pod(node="n2"))),
    ("the pod became unready", lambda g: g.observe(pod(ready=False))),
    ("the pod has other labels", lambda g: g.observe(pod(app="db"))),
]


@pytest.mark.parametrize("change", [change for _, change in UNBLOCKING], ids=[case for case, _ in UNBLOCKING])
def test_a_change_that_may_allow_an_eviction_wakes_the_drain(change: Any) -> None:
    given_ = Given()
    change(given_)
    assert given_.woken() == ["c1"]


@pytest.mark.parametrize("annotation", [names.DO_NOT_DISRUPT, *names.LEGACY_DO_NOT_DISRUPT])
def test_a_pod_that_loses_its_do_not_disrupt_annotation_wakes_the_drain(annotation: str) -> None:
    unprotected: dict[str, Any] = {"metadata": {"name": "job", "namespace": "default"}, "spec": {"nodeName": "n1"}}
    do_not_disrupt = {
        **unprotected,
        "metadata": {**unprotected["metadata"], "annotations": {annotation: "true", "a": "b"}},
    }
    given_ = Given(msgspec.convert(do_not_disrupt, WatchedPod))
    assert given_.woken() == []
    given_.observe(msgspec.convert(unprotected, WatchedPod))
    assert given_.woken() == ["c1"]


IRRELEVANT: list[tuple[str, Any]] = [
    ("a budget of another namespace", lambda g: g.observe(budget(0, namespace="x"), budget(1, namespace="x"))),
    ("a budget for other pods", lambda g: g.observe(budget(0, name="db", app="db"), budget(1, name="db", app="db"))),
    ("a budget whose status is older than its spec", lambda g: g.observe(budget(1, observed=0))),
    ("a new budget", lambda g: g.observe(budget(1, name="new"))),
    ("a pod on another node ends", lambda g: (g.observe(pod("b", node="n2")), g.delete(pod("b", node="n2")))),
    ("a pod starts", lambda g: g.observe(pod("b"))),
    ("a pod becomes ready", lambda g: g.observe(pod("b", ready=False), pod("b"))),
    ("a pod starts to terminate", lambda g: g.observe(pod(terminating=True, ready=False))),
    ("a pod is unchanged", lambda g: g.observe(pod())),
]


@pytest.mark.parametrize("change", [change for _, change in IRRELEVANT], ids=[w for w, _ in IRRELEVANT])
def test_other_changes_do_not_wake_the_drain(change: Any) -> None:
    given_ = Given()
    change(given_)
    assert given_.woken(within=LATER) == []


def test_a_budget_with_an_invalid_selector_wakes_the_drain() -> None:
    given_ = Given(budget(0, name="odd", operator="Near"), budget(1, name="odd", operator="Near"))
    assert given_.woken() == ["c1"]


def test_a_drain_with_an_imminent_attempt_and_a_claim_that_is_not_deleted_are_not_woken() -> None:
    given_ = Given(claim(next_attempt=NOON + IMMINENT), budget(1))
    assert given_.woken(within=LATER) == []
    given_ = Given(claim(terminating=False), budget(1))
    assert given_.woken(within=LATER) == []
    given_ = Given()
    given_.delete(claim())
    given_.observe(budget(1))
    assert given_.woken(within=LATER) == []


def test_a_drain_that_has_not_started_is_not_woken() -> None:
    given_ = Given(blocked=False)
    given_.observe(pod(), claim(started=False))
    given_.delete(pod())
    assert given_.woken(within=LATER) == []


def test_a_change_during_an_attempt_wakes_the_drain_when_it_is_requeued() -> None:
    given_ = Given(claim(next_attempt=NOON), budget(1))
    assert given_.woken() == []
    given_.observe(claim(next_attempt=given_.now + LATER))
    assert given_.woken() == ["c1"]


def test_a_restarted_relay_wakes_every_waiting_drain_once() -> None:
    given_ = Given(blocked=False)
    given_.relist(
        resources.NODE_CLAIMS, claim("c1"), claim("c2", node="n2"), claim("new", node="n3", next_attempt=None)
    )
    assert given_.woken() == ["c1", "c2"]
    given_.relist(resources.NODE_CLAIMS, claim("c1"), claim("c2", node="n2"))
    assert given_.woken(within=LATER) == []


def test_drains_that_are_unblocked_within_the_wake_interval_are_woken_together() -> None:
    given_ = Given()
    names_ = [f"c{i:02}" for i in range(2, 50)]
    for name in names_:
        given_.observe(claim(name, node=name, next_attempt=None), claim(name, node=name), pod(f"web-{name}", node=name))
    given_.delete(pod())
    assert given_.drains.take_unblocked(given_.now) == ("c1",)
    given_.observe(budget(1))
    assert given_.drains.take_unblocked(given_.now + SECOND) == ()
    assert given_.drains.due(given_.now + SECOND) == given_.now + WAKE_INTERVAL
    assert given_.drains.take_unblocked(given_.now + WAKE_INTERVAL) == tuple(names_)


def test_a_flapping_budget_backs_off_to_one_wake_up_a_minute() -> None:
    given_ = Given()
    times = []
    while given_.now < NOON + timedelta(hours=2):
        given_.observe(budget(0), budget(1), claim(next_attempt=given_.now + LATER))
        if given_.woken(within=timedelta(seconds=0.6)):
            times.append(given_.now)
    assert 120 <= len(times) < 130
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) <= MAX_BACKOFF + SECOND
    assert min(gaps) >= INITIAL_BACKOFF - SECOND


def test_a_budget_whose_disruptions_are_used_does_not_back_off() -> None:
    given_ = Given(*(pod(f"web-{i}") for i in range(2, 12)))
    for i in range(1, 11):
        given_.observe(budget(1))
        assert given_.woken() == ["c1"]
        given_.observe(pod(f"web-{i}", terminating=True), budget(0), claim(next_attempt=given_.now + SECOND))
        given_.delete(pod(f"web-{i}", terminating=True))
        assert given_.woken() == []
        given_.observe(claim(next_attempt=given_.now + LATER))
        assert given_.woken() == ["c1"]  # the next pod may wait for the end of this one


def test_the_backoff_of_a_budget_ends() -> None:
    given_ = Given()
    for _ in range(100):
        given_.observe(budget(0), budget(1))
        given_.woken(within=10 * SECOND)
    given_.observe(budget(0))
    given_.woken(within=2 * MAX_BACKOFF)
    given_.observe(claim(next_attempt=given_.now + LATER), budget(1))
    assert given_.drains.due(given_.now) == given_.now


changes = st.one_of(
    st.builds(budget, st.integers(0, 1), generation=st.integers(1, 2)),
    st.builds(pod, st.sampled_from(["web-1", "web-2"]), node=st.sampled_from(["n1", "n2", ""]), ready=st.booleans()),
    st.builds(
        claim,
        st.sampled_from(["c1", "c2"]),
        node=st.sampled_from(["n1", "n2", ""]),
        next_attempt=st.sampled_from([None, NOON, NOON + SECOND * 9, NOON + LATER]),
        terminating=st.booleans(),
    ),
)


@given(st.lists(st.tuples(changes, st.booleans(), st.integers(0, 9)), max_size=40))
def test_wake_ups_keep_their_interval_and_go_to_waiting_drains_only(
    changes_: list[tuple[Watched, bool, int]],
) -> None:
    given_ = Given(blocked=False)
    deleting_claims: dict[str, WatchedNodeClaim] = {}
    last: datetime | None = None
    for obj, deleted, seconds in changes_:
        (given_.delete if deleted else given_.observe)(obj)
        if isinstance(obj, WatchedNodeClaim):
            deleting_claims.pop(obj.key, None)
            if not deleted and obj.metadata.deletion_timestamp is not None:
                deleting_claims[obj.key] = obj
        given_.now += seconds * SECOND
        due = given_.drains.due(given_.now)
        woken = given_.drains.take_unblocked(given_.now)
        assert bool(woken) == (due == given_.now)
        for name in woken:
            stamp = datetime.fromisoformat(deleting_claims[name].metadata.annotations[REQUEUE_AT])
            assert stamp - given_.now > IMMINENT
        if woken:
            assert last is None or given_.now - last >= WAKE_INTERVAL
            last = given_.now
