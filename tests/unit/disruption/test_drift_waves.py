"""Drift in waves: a few nodes first, more when the new ones are healthy, and none after one has failed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shared.api import labels as names
from shared.api.hash import hash_of_nodes
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import DRIFTED, LAUNCHED
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassStatus, ResolvedAMI
from shared.api.nodepool import NodeClassRef, NodePool
from shared.base.struct import with_fields
from shared.disruption import drift_waves
from shared.disruption.budgets import allowed_disruptions
from shared.disruption.disruption_queue import QueueEntry, with_queue_entry
from shared.disruption.drift_waves import Rollout
from tests.unit.disruption.conftest import NOW

if TYPE_CHECKING:
    from shared.snapshot import Snapshot
    from tests.unit.disruption.conftest import Cluster

MINUTE = timedelta(minutes=1)
SINCE = NOW - timedelta(hours=1)
CLASS = EC2NodeClass(metadata=ObjectMeta(name="class"), status=EC2NodeClassStatus(amis=[ResolvedAMI(id="ami-1")]))


@pytest.fixture
def ten(cluster: Cluster) -> Cluster:
    """A NodePool with waves, whose ten nodes have drifted."""
    template = cluster.pool.spec.template
    spec = with_fields(template.spec, node_class_ref=NodeClassRef(name="class"))
    cluster.pool = with_fields(
        cluster.pool, spec=with_fields(cluster.pool.spec, template=with_fields(template, spec=spec))
    )
    annotate(cluster, waves="1, 20%, 50% healthy for 10m")
    for i in range(10):
        cluster.node(f"old-{i}", 1)
        last(cluster, Condition(type=DRIFTED, status="True"))
    return cluster


def annotate(cluster: Cluster, *, waves: str, stopped: str = "") -> None:
    rollout = Rollout(target=hash_of_nodes(cluster.pool, CLASS), since=SINCE, stopped=stopped)
    annotations = {names.DRIFT_WAVES: waves, names.DRIFT_ROLLOUT: msgspec.json.encode(rollout).decode()}
    cluster.pool = with_fields(cluster.pool, metadata=with_fields(cluster.pool.metadata, annotations=annotations))


def last(cluster: Cluster, *conditions: Condition, replace: bool = False) -> None:
    """Add conditions to the last NodeClaim, or have no others."""
    claim = cluster.claims[-1]
    before = [] if replace else claim.status.conditions
    cluster.claims[-1] = with_fields(claim, status=with_fields(claim.status, conditions=[*before, *conditions]))


def new(cluster: Cluster, *ages: int) -> None:
    """A new node for each age in minutes; it was initialized at once."""
    for age in ages:
        cluster.node(f"new-{len(cluster.nodes)}", 1, age=age * MINUTE)


def snapshot(cluster: Cluster) -> Snapshot:
    return with_fields(cluster.snapshot, node_classes=(CLASS,))


def allowed(cluster: Cluster) -> int:
    return allowed_disruptions(cluster.pool, snapshot(cluster), reason="Drifted", now=NOW)


def message(cluster: Cluster) -> str:
    return drift_waves.limit(cluster.pool, snapshot(cluster), now=NOW).message


def recorded(cluster: Cluster) -> Rollout:
    rollout = drift_waves.next_rollout(cluster.pool, snapshot(cluster), now=NOW)
    assert rollout is not None
    return rollout


def test_the_first_wave_is_one_node_and_the_next_waits_until_it_has_been_healthy(ten: Cluster) -> None:
    assert allowed(ten) == 1
    new(ten, 5)
    assert allowed(ten) == 0
    assert message(ten) == ("wave 1 of 4 of drift in NodePool default ends with 1 new node healthy for 10m (0 now)")


def test_waves_grow_and_the_last_is_all_the_others(ten: Cluster) -> None:
    ten.claims, ten.nodes = ten.claims[1:], ten.nodes[1:]
    new(ten, 11)
    assert allowed(ten) == 2  # a fifth of ten
    ten.claims, ten.nodes = ten.claims[2:], ten.nodes[2:]
    new(ten, 11, 11)
    assert allowed(ten) == 5  # half of ten
    ten.claims, ten.nodes = ten.claims[5:], ten.nodes[5:]
    new(ten, *[11] * 5)
    assert allowed(ten) == 10  # the budget's


def test_a_new_node_of_the_second_in_which_the_rollout_began_counts(ten: Cluster) -> None:
    new(ten, 60)
    ten.claims[-1] = with_fields(
        ten.claims[-1],
        metadata=with_fields(ten.claims[-1].metadata, creation_timestamp=SINCE - timedelta(milliseconds=900)),
        status=with_fields(ten.claims[-1].status, conditions=[]),
    )
    assert allowed(ten) == 0


def test_other_reasons_have_no_waves(ten: Cluster) -> None:
    assert allowed_disruptions(ten.pool, snapshot(ten), reason="Expired", now=NOW) == 10


def test_nodes_on_their_way_count_once(ten: Cluster) -> None:
    entry = QueueEntry(id="1", reason="Drifted", since=NOW)
    ten.claims[0] = with_queue_entry(ten.claims[0], entry)
    assert allowed(ten) == 0
    ten.claims[0] = with_queue_entry(ten.claims[0], with_fields(entry, replacements=["claim-new"]))
    new(ten, 1)
    assert allowed(ten) == 0


def test_nodes_from_before_the_change_that_have_not_drifted_prove_nothing(ten: Cluster) -> None:
    new(ten, *[6 * 60] * 5)
    assert allowed(ten) == 1


def not_launched(cluster: Cluster) -> None:
    new(cluster, 2)
    last(cluster, Condition(type=LAUNCHED, status="False", message="InvalidAMIID"), replace=True)


def not_initialized(cluster: Cluster) -> None:
    new(cluster, 11)
    last(cluster, Condition(type=LAUNCHED, status="True"), replace=True)


def unhealthy(cluster: Cluster, type_: str = "Ready", *, age: int = 12, minutes: int = 3) -> None:
    new(cluster, age)
    failed = Condition(type=type_, status="False", reason="Broken", last_transition_time=NOW - minutes * MINUTE)
    node = cluster.nodes[-1]
    cluster.nodes[-1] = with_fields(node, status=with_fields(node.status, conditions=[failed]))


@pytest.mark.parametrize(
    ("fail", "why"),
    [
        (not_launched, "couldn't be launched: InvalidAMIID"),
        (not_initialized, "isn't initialized after 10m"),
        (unhealthy, "is unhealthy: condition Ready of its node is False (Broken)"),
        (lambda c: unhealthy(c, "NetworkingReady"), "condition NetworkingReady of its node is False (Broken)"),
    ],
)
def test_the_first_new_node_that_fails_stops_drift(ten: Cluster, fail: Any, why: str) -> None:
    fail(ten)
    assert allowed(ten) == 0
    assert why in message(ten)
    assert "kubectl annotate nodepool default tenon.sh/drift-rollout-" in message(ten)
    rollout = recorded(ten)
    assert rollout.stopped.startswith("NodeClaim claim-new-10 ")
    assert why in rollout.stopped


def test_a_stop_outlives_the_node_that_failed_until_the_annotation_goes(ten: Cluster) -> None:
    annotate(ten, waves="1", stopped="NodeClaim a isn't initialized after 10m")
    assert recorded(ten).stopped
    assert allowed(ten) == 0
    kept = {names.DRIFT_WAVES: "1"}
    ten.pool = with_fields(ten.pool, metadata=with_fields(ten.pool.metadata, annotations=kept))
    assert allowed(ten) == 0
    assert recorded(ten) == Rollout(target=hash_of_nodes(ten.pool, CLASS), since=NOW)


def test_a_change_of_the_pool_or_of_what_its_class_selects_begins_with_the_first_wave(ten: Cluster) -> None:
    annotate(ten, waves="1", stopped="NodeClaim a isn't initialized after 10m")
    spec = ten.pool.spec.template.spec
    zone = NodeSelectorRequirement(key=names.ZONE, operator="In", values=["a"])
    template = with_fields(ten.pool.spec.template, spec=with_fields(spec, requirements=[zone]))
    changed = with_fields(ten.pool, spec=with_fields(ten.pool.spec, template=template))
    assert drift_waves.limit(changed, snapshot(ten), now=NOW).allowed == 0  # until it is recorded
    rollout = drift_waves.next_rollout(changed, snapshot(ten), now=NOW)
    assert rollout is not None
    assert (rollout.since, rollout.stopped) == (NOW, "")
    images = with_fields(CLASS, status=with_fields(CLASS.status, amis=[ResolvedAMI(id="ami-2")]))
    rollout = drift_waves.next_rollout(ten.pool, with_fields(snapshot(ten), node_classes=(images,)), now=NOW)
    assert rollout is not None
    assert rollout.since == NOW


@pytest.mark.parametrize(("age", "minutes"), [(30, 3), (12, 1)])
def test_a_node_that_fails_later_or_for_a_moment_does_not_stop_drift(ten: Cluster, age: int, minutes: int) -> None:
    unhealthy(ten, age=age, minutes=minutes)
    assert not recorded(ten).stopped


def test_without_drifted_nodes_nothing_is_stopped(ten: Cluster) -> None:
    ten.claims.clear()
    not_initialized(ten)
    assert not recorded(ten).stopped


def test_the_order_of_what_the_class_selects_is_no_change() -> None:
    amis = [ResolvedAMI(id="ami-1"), ResolvedAMI(id="ami-2")]
    classes = (with_fields(CLASS, status=EC2NodeClassStatus(amis=ids)) for ids in (amis, amis[::-1]))
    pool = NodePool(metadata=ObjectMeta(name="default"))
    assert len({hash_of_nodes(pool, node_class) for node_class in classes}) == 1


@pytest.mark.parametrize("text", ["", "one", "0", "101%", "1; 2", "1, 10% healthy for long", "1 healthy for Never"])
def test_a_value_that_cannot_be_used_stops_drift_and_is_named(ten: Cluster, text: str) -> None:
    annotate(ten, waves=text)
    assert allowed(ten) == 0
    assert f"annotation {names.DRIFT_WAVES}" in message(ten)
    assert drift_waves.next_rollout(ten.pool, snapshot(ten), now=NOW) is None


def test_percentages_are_rounded_up_and_the_default_is_ten_minutes() -> None:
    waves = drift_waves.parse_waves("1, 10%, 50%")
    assert waves.healthy_for == 10 * MINUTE
    assert waves.totals(3) == (1, 2, 4)
