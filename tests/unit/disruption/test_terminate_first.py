"""Nodes of which no replacement can be staged next to them go first, where their NodePool allows it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels as names
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.meta import with_condition
from shared.api.nodeclaim import INITIALIZED, NodeClaimSpec
from shared.api.nodepool import Budget, NodeClaimTemplate, TemplateSpec
from shared.base.struct import with_fields
from shared.disruption import expiration, static_disruption
from shared.disruption.terminate_first import NO_RESERVED_CAPACITY, STATIC_AT_LIMIT, TERMINATE_FIRST
from shared.instance_types.instance_type import RESERVATION_ID, Offering

if TYPE_CHECKING:
    from shared.disruption.command import MethodResult
    from shared.instance_types.instance_type import InstanceType
    from tests.unit.disruption.conftest import Cluster

OLD = NodeClaimSpec(expire_after="5h")
RESERVED_ONLY = NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=[names.RESERVED])


def allowed(cluster: Cluster) -> None:
    metadata = with_fields(cluster.pool.metadata, annotations={TERMINATE_FIRST: "true"})
    cluster.pool = with_fields(cluster.pool, metadata=metadata)


def pool(cluster: Cluster, **spec: Any) -> None:
    cluster.pool = with_fields(cluster.pool, spec=with_fields(cluster.pool.spec, **spec))


def with_reservation(instance_type: InstanceType, **offering: Any) -> InstanceType:
    """The type with a reservation in zone a, full unless fields of the offering say otherwise."""
    fields: dict[str, Any] = {"available": False, "full": True, **offering}
    reserved = Offering(
        zone="a", capacity_type=names.RESERVED, price=0.000001, labels={RESERVATION_ID: "cr-1"}, **fields
    )
    return with_fields(instance_type, offerings=(*instance_type.offerings, reserved))


def reserved_cluster(cluster: Cluster, **offering: Any) -> None:
    """An old node in a reservation, with a pod, in a NodePool that allows reserved capacity only."""
    smallest, *larger = cluster.types
    cluster.types = (with_reservation(smallest, **offering), *larger)
    pool(cluster, template=NodeClaimTemplate(spec=TemplateSpec(requirements=[RESERVED_ONLY])))
    reserved_node(cluster, "old")
    cluster.pod("p", "old", 600)


def reserved_node(cluster: Cluster, name: str, *, reservation: str = "cr-1") -> None:
    cluster.node(name, 1, spec=OLD)
    labels = {names.CAPACITY_TYPE: names.RESERVED, RESERVATION_ID: reservation}
    for objects in (cluster.claims, cluster.nodes):
        last: Any = objects[-1]
        objects[-1] = with_fields(last, metadata=with_fields(last.metadata, labels={**last.metadata.labels, **labels}))


def expired(cluster: Cluster) -> MethodResult:
    return expiration.compute(cluster.state(), cluster.budget_tracker())


def static(cluster: Cluster) -> MethodResult:
    return static_disruption.compute(cluster.state(), cluster.budget_tracker())


def test_a_node_in_a_full_reservation_goes_before_its_replacement_comes(cluster: Cluster) -> None:
    reserved_cluster(cluster)
    allowed(cluster)
    (command,) = expired(cluster).commands
    assert (command.nodes, command.replacements) == (("old",), ())
    assert command.terminate_first == NO_RESERVED_CAPACITY
    assert "capacity reservation cr-1 is full" in command.message


def test_without_the_annotation_it_stays_and_the_event_names_the_annotation(cluster: Cluster) -> None:
    reserved_cluster(cluster)
    result = expired(cluster)
    assert result.commands == ()
    (blocked,) = result.blocked
    assert "capacity reservation cr-1 is full, so no replacement can be staged" in blocked.message
    assert 'annotation tenon.sh/terminate-first: "true" on NodePool default' in blocked.message


def test_it_is_replaced_first_where_that_is_possible(cluster: Cluster) -> None:
    reserved_cluster(cluster, available=True, full=False)
    allowed(cluster)
    (command,) = expired(cluster).commands
    assert len(command.replacements) == 1
    assert command.terminate_first == ""


@pytest.mark.parametrize("reservation", ["cr-1", "cr-other"])
def test_it_stays_if_its_slot_would_not_help(cluster: Cluster, reservation: str) -> None:
    reserved_cluster(cluster)
    allowed(cluster)
    cluster.pods.clear()
    if reservation == "cr-1":
        cluster.pod("p", "old", node_selector={"disk": "unobtainable"})
    else:
        cluster.claims.clear()
        cluster.nodes.clear()
        reserved_node(cluster, "old", reservation=reservation)
        cluster.pod("p", "old")
    result = expired(cluster)
    assert result.commands == ()
    assert len(result.blocked) == 1


def test_it_stays_if_its_pods_need_more_than_its_slot(cluster: Cluster) -> None:
    """The node's kubelet allows more than a node of today's class does, so one slot isn't enough for its pods."""
    reserved_cluster(cluster)
    allowed(cluster)
    cluster.pod("q", "old", 600)
    result = expired(cluster)
    assert result.commands == ()
    assert "need 2 nodes in capacity reservation cr-1" in result.blocked[0].message


def test_a_reservation_that_is_unavailable_for_another_reason_is_not_full(cluster: Cluster) -> None:
    reserved_cluster(cluster, full=False)
    allowed(cluster)
    assert expired(cluster).commands == ()


def test_only_one_goes_first_in_a_pass_and_blockers_hold(cluster: Cluster) -> None:
    reserved_cluster(cluster)
    reserved_node(cluster, "second")
    cluster.pod("q", "second", 600)
    allowed(cluster)
    result = expired(cluster)
    assert [c.nodes for c in result.commands] == [("old",)]
    assert [b.node for b in result.blocked] == ["second"]
    cluster.pod_budget(0)
    assert expired(cluster).commands == ()
    cluster.pod_disruption_budgets.clear()
    pool(cluster, disruption=with_fields(cluster.pool.spec.disruption, budgets=[Budget(nodes="0")]))
    assert expired(cluster).commands == ()


def test_a_static_pool_at_its_node_limit_terminates_first(cluster: Cluster) -> None:
    pool(cluster, replicas=2, limits={"nodes": "2"})
    cluster.node("a", 1, spec=OLD)
    cluster.node("b", 1, spec=OLD)
    result = static(cluster)
    assert result.commands == ()
    assert "static NodePool default is at its limit of 2 nodes, so no replacement can be" in result.blocked[0].message
    allowed(cluster)
    (command,) = static(cluster).commands
    assert (command.nodes, command.replacements) == (("a",), ())
    assert command.terminate_first == STATIC_AT_LIMIT


def test_a_static_pool_below_its_limit_replaces_first(cluster: Cluster) -> None:
    pool(cluster, replicas=1, limits={"nodes": "2"})
    cluster.node("a", 1, spec=OLD)
    allowed(cluster)
    (command,) = static(cluster).commands
    assert len(command.replacements) == 1


def test_a_static_pool_never_lacks_more_than_one_node(cluster: Cluster) -> None:
    pool(cluster, replicas=2, limits={"nodes": "2"})
    allowed(cluster)
    cluster.node("a", 1, spec=OLD)
    cluster.node("booting", 1, age=timedelta(minutes=1))
    booting = cluster.claims[-1]
    conditions = with_condition(
        booting.status.conditions, INITIALIZED, status=None, reason="B", now=cluster.state().now, generation=1
    )
    cluster.claims[-1] = with_fields(booting, status=with_fields(booting.status, conditions=conditions))
    result = static(cluster)
    assert result.commands == ()
    assert "1 of 2 nodes are initialized" in result.blocked[0].message


def test_a_static_pool_whose_replacement_could_not_be_launched_either_way_keeps_its_node(cluster: Cluster) -> None:
    pool(cluster, replicas=1, limits={"nodes": "1"})
    allowed(cluster)
    cluster.node("a", 1, spec=OLD)
    cluster.types = tuple(
        with_fields(t, offerings=tuple(with_fields(o, available=False) for o in t.offerings)) for t in cluster.types
    )
    result = static(cluster)
    assert result.commands == ()
    assert "nor would it have a replacement if it went first" in result.blocked[0].message


def test_a_static_pool_of_full_reservations_lets_only_nodes_in_them_go_first(cluster: Cluster) -> None:
    reserved_cluster(cluster)
    cluster.pods.clear()
    pool(cluster, replicas=2, limits={"nodes": "3"})
    cluster.node("aaa-on-demand", 1, spec=OLD, age=timedelta(hours=9))
    allowed(cluster)
    result = static(cluster)
    assert [(c.nodes, c.terminate_first) for c in result.commands] == [(("old",), NO_RESERVED_CAPACITY)]
    assert [b.node for b in result.blocked] == ["aaa-on-demand"]
