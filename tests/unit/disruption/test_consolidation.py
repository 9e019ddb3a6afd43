from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.api import labels as names
from shared.api.containers import ContainerStatus, ResourceRequirements
from shared.api.kubernetes import RESIZE_PENDING, Taint
from shared.api.meta import Condition
from shared.api.nodepool import Budget
from shared.api.pod_references import PodResourceClaim
from shared.base.struct import with_fields
from shared.disruption.candidates import PODS_WITHOUT_CONTROLLER
from shared.disruption.consolidation import due_candidates, find_candidates, search, validate
from shared.instance_types.spot_risk import spot_risk
from shared.scheduling.decision import Problem
from shared.scheduling.scheduler import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.disruption.command import Command
    from shared.disruption.consolidation import SearchResult
    from tests.unit.disruption.conftest import Cluster


def _is_over(steps: Iterator[int]) -> bool:
    return next(steps, None) is None


def never() -> bool:
    return False


def search_once(cluster: Cluster) -> SearchResult:
    return search(cluster.state(), cluster.budget_tracker(), never)


def best_command(cluster: Cluster) -> Command:
    command = search_once(cluster).command
    assert command is not None
    return command


def test_a_node_with_a_pod_that_has_resource_claims_stays(cluster: Cluster) -> None:
    """Nothing says which other node has devices for it."""
    cluster.node("roomy", 8, annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.node("with-device", 2)
    cluster.pod("driver", "with-device", resource_claims=[PodResourceClaim(name="fpga")])
    cluster.node("plain", 1)
    cluster.pod("web", "plain", 500)
    assert best_command(cluster).nodes == ("plain",)


def test_a_node_whose_pods_fit_elsewhere_is_deleted(cluster: Cluster) -> None:
    cluster.node("full", 8, annotations={names.DO_NOT_DISRUPT: "true"})
    for i in range(6):
        cluster.pod(f"f{i}", "full")
    cluster.node("small", 2)
    cluster.pod("s", "small")
    command = best_command(cluster)
    assert command.nodes == ("small",)
    assert command.replacements == ()
    assert command.savings == 0.1
    assert command.removals[0].pods == ("default/s",)


def test_the_room_that_a_deferred_resize_waits_for_is_not_given_to_moved_pods(cluster: Cluster) -> None:
    cluster.node("full", 8, annotations={names.DO_NOT_DISRUPT: "true"})
    for i in range(6):
        cluster.pod(f"f{i}", "full")
    grown = cluster.pods[0]
    container = with_fields(
        grown.spec.containers[0], name="c", resources=ResourceRequirements(requests={"cpu": "3", "memory": "1Gi"})
    )
    had = ContainerStatus(name="c", resources=ResourceRequirements(requests={"cpu": "1", "memory": "1Gi"}))
    pending = Condition(type=RESIZE_PENDING, status="True", reason="Deferred")
    status = with_fields(grown.status, conditions=[pending], container_statuses=[had])
    cluster.pods[0] = with_fields(grown, spec=with_fields(grown.spec, containers=[container]), status=status)
    cluster.node("small", 2)
    cluster.pod("s", "small")
    command = search_once(cluster).command
    assert command is None or command.replacements
    accepted = with_fields(status, conditions=[with_fields(pending, reason="Infeasible")])
    cluster.pods[0] = with_fields(grown, spec=with_fields(grown.spec, containers=[container]), status=accepted)
    assert best_command(cluster).replacements == ()


def test_a_large_node_with_little_on_it_is_replaced_by_a_small_one(cluster: Cluster) -> None:
    cluster.node("big", 8)
    cluster.pod("p", "big", 1000)
    command = best_command(cluster)
    assert command.nodes == ("big",)
    (claim,) = command.replacements
    assert claim.instance_types[0] == "m.1x"


def test_several_half_empty_nodes_become_fewer(cluster: Cluster) -> None:
    for name in "abcd":
        cluster.node(name, 8)
        for i in range(3):
            cluster.pod(f"{name}{i}", name, 2000)
    command = best_command(cluster)
    before = 4 * 8 * 0.05
    assert command.savings > 0
    assert before - command.savings <= 24 * 0.05 + 1e-9


def test_every_type_that_a_replacement_may_become_is_a_saving(cluster: Cluster) -> None:
    cluster.node("big", 4)
    cluster.pod("p", "big", 1000)
    (claim,) = best_command(cluster).replacements
    prices = {"m.1x": 0.02, "m.2x": 0.04, "m.4x": 0.08, "m.8x": 0.16}
    assert claim.cheapest.capacity_type == names.SPOT
    assert all(prices[t] < 4 * 0.05 for t in claim.instance_types)
    assert [r.values for r in claim.requirements if r.key == names.CAPACITY_TYPE] == [[names.SPOT]]


def test_a_node_in_a_pool_with_interruptions_is_deleted_before_one_in_a_calm_pool(cluster: Cluster) -> None:
    for name in ("first", "second"):
        cluster.node(name, 4, spot=True)
        cluster.pod(f"pod-1-{name}", name)
        cluster.pod(f"pod-2-{name}", name)
    for claim, node in zip(cluster.claims[1:], cluster.nodes[1:], strict=True):
        claim.metadata.labels[names.ZONE] = node.metadata.labels[names.ZONE] = "b"
    calm = cluster.types
    for zone, removed in (("a", "first"), ("b", "second")):
        risk = spot_risk({("m.4x", zone): 0.1})
        assert risk is not None
        cluster.types = risk.of(calm)
        assert best_command(cluster).nodes == (removed,)


def test_spot_to_spot_needs_enough_instance_types(cluster: Cluster) -> None:
    cluster.node("big", 8, spot=True)
    cluster.pod("p", "big", 1000)
    assert search_once(cluster).command is None


def test_nodes_that_save_less_than_their_disruption_cost_stay(cluster: Cluster) -> None:
    cluster.node("full", 8)
    for i in range(4):
        cluster.pod(f"f{i}", "full", 100)
    cluster.node("young", 1, age=timedelta(minutes=1))
    for i in range(20):
        cluster.pod(f"y{i}", "young", 20)
    command = search_once(cluster).command
    assert command is None or "young" not in command.nodes


def test_blockers_keep_nodes_and_are_reported(cluster: Cluster) -> None:
    cluster.node("room", 8)
    cluster.node("kept", 1, annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.pod("a", "kept", 100)
    cluster.node("pod", 1)
    cluster.pod("b", "pod", 100, annotations={names.DO_NOT_DISRUPT: "true"})
    result = search_once(cluster)
    messages = {r.node: r.message for r in result.blocked}
    assert names.DO_NOT_DISRUPT in messages["kept"]
    assert "pod default/b" in messages["pod"]
    assert not set(messages) & set(result.command.nodes if result.command else ())
    cluster.pod_budget(0)
    cluster.pod("d", "room", 100)
    assert "PodDisruptionBudget web" in {r.node: r.message for r in search_once(cluster).blocked}["room"]


def test_a_pod_without_a_controller_blocks_its_node_only_where_the_pool_says_so(cluster: Cluster) -> None:
    cluster.node("room", 8)
    cluster.node("orphan", 1)
    cluster.pod("c", "orphan", 100, owned=False)
    assert "orphan" in best_command(cluster).nodes
    annotations = {PODS_WITHOUT_CONTROLLER: "block"}
    cluster.pool = with_fields(cluster.pool, metadata=with_fields(cluster.pool.metadata, annotations=annotations))
    result = search_once(cluster)
    assert {r.node: r.message for r in result.blocked} == {"orphan": "pod default/c has no controller to recreate it"}
    assert result.command is None or "orphan" not in result.command.nodes


def test_a_duration_of_do_not_disrupt_ends(cluster: Cluster) -> None:
    cluster.node("big", 8)
    cluster.pod("p", "big", 1000, annotations={names.DO_NOT_DISRUPT: "7h"})
    assert search_once(cluster).command is None
    cluster.pods.clear()
    cluster.pod("p", "big", 1000, annotations={names.DO_NOT_DISRUPT: "5h"})
    assert best_command(cluster).nodes == ("big",)


def test_a_node_is_left_alone_for_consolidate_after_and_when_empty_pools_always(cluster: Cluster) -> None:
    cluster.disruption(consolidate_after="1h")
    cluster.node("young", 8, age=timedelta(minutes=59))
    cluster.pod("p", "young")
    assert due_candidates(cluster.state()) == ()
    assert len(due_candidates(cluster.state(later=timedelta(minutes=1)))) == 1
    cluster.disruption(consolidation_policy="WhenEmpty")
    assert find_candidates(cluster.state()) == ()


def test_nominated_and_tainted_nodes_take_no_moved_pods(cluster: Cluster) -> None:
    cluster.node("big", 8)
    cluster.pod("p", "big")
    state = cluster.state(nominated=frozenset({"big"}))
    assert search(state, cluster.budget_tracker(), never).command is None


def test_pending_pods_that_need_nodes_come_first(cluster: Cluster) -> None:
    cluster.node("big", 4)
    cluster.pod("p", "big", 1000)
    cluster.pod("waiting", "", 7000)
    waiting = cluster.pods.pop()
    status = type(waiting.status)(
        phase="Pending", conditions=[Condition(type="PodScheduled", status="False", reason="Unschedulable")]
    )
    cluster.pods.append(type(waiting)(metadata=waiting.metadata, spec=waiting.spec, status=status))
    assert search_once(cluster).command is None


def test_a_changed_cluster_invalidates_a_command(cluster: Cluster) -> None:
    cluster.node("big", 8)
    cluster.pod("p", "big", 1000)
    command = best_command(cluster)
    assert validate(command, cluster.state(), cluster.budget_tracker()) == ""
    cluster.pod("new", "big", 1000)
    assert "new pods" in validate(command, cluster.state(), cluster.budget_tracker())
    cluster.pods.pop()
    cluster.disruption(budgets=[Budget(nodes="0")])
    assert "budgets" in validate(command, cluster.state(), cluster.budget_tracker())
    cluster.nodes.clear()
    assert "no longer a candidate" in validate(command, cluster.state(), cluster.budget_tracker())


def test_the_search_can_be_stopped_at_any_moment_and_is_deterministic(cluster: Cluster) -> None:
    for i in range(12):
        cluster.node(f"n{i:02d}", 8)
        for k in range(i % 4 + 1):
            cluster.pod(f"p{i}-{k}", f"n{i:02d}", 1000)
    values = []
    for steps in (0, 1, 3, 10, 40):
        left = iter(range(steps))
        values.append(search(cluster.state(), cluster.budget_tracker(), partial(_is_over, left)))
    worths = [v.net_savings for v in values]
    assert worths == sorted(worths)
    assert worths[0].usd == 0
    assert worths[-1].usd > 0
    again = iter(range(40))
    assert search(cluster.state(), cluster.budget_tracker(), lambda: next(again, None) is None) == values[-1]


nodes = st.lists(
    st.tuples(
        st.sampled_from((1, 2, 4, 8)),
        st.booleans(),
        st.lists(st.sampled_from((100, 500, 900)), max_size=5),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nodes=nodes, budget=st.sampled_from(("0", "1", "50%", "100%")), allowed=st.integers(0, 4))
def test_no_command_breaks_a_rule_or_costs_more(
    make: Callable[[], Cluster], nodes: list[tuple[int, bool, list[int], bool]], budget: str, allowed: int
) -> None:
    cluster = make()
    cluster.disruption(budgets=[Budget(nodes=budget)])
    cluster.pod_budget(allowed)
    for i, (cpu, spot, pods, kept) in enumerate(nodes):
        cluster.node(f"n{i}", cpu, spot=spot, annotations={names.DO_NOT_DISRUPT: "true"} if kept else {})
        room = cpu * 1000
        for k, request in enumerate(pods):
            if request <= room:
                room -= request
                cluster.pod(f"p{i}-{k}", f"n{i}", request)
    budgets = cluster.budget_tracker().remaining("default", "Underutilized")
    command = search(cluster.state(), cluster.budget_tracker(), never).command
    if command is None:
        return
    assert command.pod_count == sum(1 for p in cluster.pods if p.spec.node_name in command.nodes)
    assert len(command.nodes) <= budgets
    assert not {f"n{i}" for i, (_, _, _, kept) in enumerate(nodes) if kept} & set(command.nodes)
    holding = [n for n in command.nodes if any(p.spec.node_name == n for p in cluster.pods)]
    assert not holding or allowed > 0
    assert len(holding) <= 1 or command.pod_count <= allowed
    problem = Problem(
        snapshot=cluster.snapshot, instance_types={"default": cluster.types}, leaving=frozenset(command.nodes)
    )
    decision = schedule(problem)
    assert not decision.pod_errors
    state = cluster.state()
    prices = {c.status.node_name: state.price(c) or 0.0 for c in cluster.claims}
    assert sum(prices[n] for n in command.nodes) > sum(c.cheapest.price for c in decision.new_node_claims)
    assert command.savings > 0


def test_a_taint_that_pods_do_not_tolerate_leaves_no_capacity(cluster: Cluster) -> None:
    cluster.node("room", 8)
    cluster.nodes[0] = type(cluster.nodes[0])(
        metadata=cluster.nodes[0].metadata,
        spec=type(cluster.nodes[0].spec)(
            provider_id=cluster.nodes[0].spec.provider_id, taints=[Taint(key="own", effect="NoSchedule")]
        ),
        status=cluster.nodes[0].status,
    )
    cluster.pod("r", "room", 7000, annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.node("small", 1)
    cluster.pod("s", "small", 900)
    command = search_once(cluster).command
    assert command is None or command.replacements
