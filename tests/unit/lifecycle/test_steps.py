"""The steps of a reconcile: their order, and when each of them runs."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from functions.lifecycle.context import ReconcileScope
from functions.lifecycle.steps import STEPS, ReconcileState, Step
from shared.api import labels as names
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.meta import ObjectMeta
from shared.api.node_overlay import NodeOverlay
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool
from shared.api.reboot import with_request
from shared.snapshot import BufferObjects, Snapshot

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EMPTY = Snapshot(taken_at=NOW)
JOINING = ReconcileScope(resolve_node_classes=False, compare_with_ec2=False)
NODE_POOLS_CHANGED = ReconcileScope(resolve_node_classes=True, compare_with_ec2=False)
SCHEDULED = ReconcileScope(resolve_node_classes=True, compare_with_ec2=True)
OPTIONAL = {
    *("NodeOverlay statuses", "CapacityBuffer statuses", "cluster limit conditions", "standby nodes", "reboots"),
    "drift rollouts",
}


def steps(scope: ReconcileScope, snapshot: Snapshot = EMPTY) -> list[str]:
    """The names of the steps that run."""
    state = ReconcileState.of(snapshot, scope, nominate=True)
    return [step.name for step in STEPS if step.when(state)]


def node_pool_with_waves() -> NodePool:
    return NodePool(metadata=ObjectMeta(name="p", annotations={names.DRIFT_WAVES: "1"}))


def standby_node() -> NodeClaim:
    return NodeClaim(metadata=ObjectMeta(name="s", annotations={names.STANDBY: "stopped"}))


def rebooting_node() -> NodeClaim:
    return with_request(NodeClaim(metadata=ObjectMeta(name="r")), "", now=NOW)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_follows_those_whose_results_it_needs(step: Step) -> None:
    before = [s.name for s in STEPS[: STEPS.index(step)]]
    assert set(step.after) <= set(before)


def test_steps_that_need_the_lease_come_before_all_others() -> None:
    needs = [step.exclusive for step in STEPS]
    assert needs == sorted(needs, reverse=True)
    assert [step.name for step in STEPS if step.exclusive] == ["Karpenter's lease", "NodeClaims", "reboots"]


def test_no_step_is_in_the_list_twice() -> None:
    assert len({step.name for step in STEPS}) == len({step.run for step in STEPS}) == len(STEPS)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("NodeClaims", "boot failures"),  # a NodeClaim that is given up is such a failure
        ("NodeClaims", "garbage collection"),  # an instance whose NodeClaim was restored is no garbage
        ("boot failures", "node classes"),  # they say in which class machines died at boot
        ("node classes", "NodeOverlay statuses"),
        ("node classes", "NodePool statuses"),  # a NodePool is ready if its node class is
        ("pauses", "NodePool statuses"),
        ("instances", "garbage collection"),
        ("node classes", "zonal shifts"),  # zones are known by the subnets of node classes
        ("zonal shifts", "garbage collection"),  # EC2 may not know the instances there
        ("garbage collection", "unused resources"),
    ],
)
def test_what_a_step_needs_comes_before_it(earlier: str, later: str) -> None:
    order = [step.name for step in STEPS]
    assert order.index(earlier) < order.index(later)


def test_a_reconcile_for_a_node_that_joins_resolves_nothing_and_compares_nothing() -> None:
    assert steps(JOINING) == ["NodeClaims", "invalid objects", "NodePool statuses"]


def test_changed_node_pools_are_resolved_but_not_compared_with_ec2() -> None:
    changed = set(steps(NODE_POOLS_CHANGED))
    assert {"node classes", "pauses", "adoption"} <= changed
    assert changed.isdisjoint({"instances", "garbage collection", "unused resources", "metrics"})


def test_the_schedule_runs_every_step_but_those_of_features_that_are_off() -> None:
    assert set(steps(SCHEDULED)) == {step.name for step in STEPS} - OPTIONAL


@pytest.mark.parametrize(
    ("feature", "step"),
    [
        (Snapshot(taken_at=NOW, node_overlays=(NodeOverlay(),)), "NodeOverlay statuses"),
        (
            Snapshot(taken_at=NOW, capacity_buffers=(BufferObjects(buffer=CapacityBuffer()),)),
            "CapacityBuffer statuses",
        ),
        (Snapshot(taken_at=NOW, node_claims=(standby_node(),)), "standby nodes"),
        (Snapshot(taken_at=NOW, node_claims=(rebooting_node(),)), "reboots"),
        (Snapshot(taken_at=NOW, cluster_limits={"cpu": 1000}), "cluster limit conditions"),
        (Snapshot(taken_at=NOW, node_pools=(node_pool_with_waves(),)), "drift rollouts"),
    ],
)
def test_a_feature_has_its_step_where_the_cluster_uses_it(feature: Snapshot, step: str) -> None:
    assert set(steps(SCHEDULED, feature)) & OPTIONAL == {step}


def test_no_two_reconciles_at_once_call_a_reboot() -> None:
    state = ReconcileState.of(Snapshot(taken_at=NOW, node_claims=(rebooting_node(),)), SCHEDULED, nominate=False)
    assert "reboots" not in [step.name for step in STEPS if step.when(state)]


def test_the_modules_of_features_that_are_off_are_not_imported() -> None:
    code = "import functions.lifecycle.handler, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    optional = {
        *("statuses.node_overlay_status", "statuses.capacity_buffer_status"),
        *("claims.standby_nodes", "claims.reboot"),
        *("statuses.cluster_limit_status", "statuses.zonal_shifts", "statuses.drift_rollouts"),
    }
    assert {f"functions.lifecycle.{module}" for module in optional}.isdisjoint(done.stdout.split())
