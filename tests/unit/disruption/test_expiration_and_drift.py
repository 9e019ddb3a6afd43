from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shared.api import labels as names
from shared.api.hash import NODEPOOL_HASH_VERSION, hash_node_pool
from shared.api.kubernetes import NodeSelectorRequirement
from shared.api.nodeclaim import NodeClaimSpec, NodeClaimStatus
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassStatus, ResolvedAMI, ResolvedSecurityGroup, ResolvedSubnet
from shared.api.nodepool import Budget, NodeClaimTemplate, TemplateMetadata, TemplateSpec
from shared.base.struct import with_fields
from shared.cloud_provider import InstanceNetwork
from shared.disruption import drift, expiration
from shared.launch.drift import node_class_drift

if TYPE_CHECKING:
    from shared.disruption.command import MethodResult
    from tests.unit.disruption.conftest import Cluster

HOUR = timedelta(hours=1)


def old(*, termination_grace_period: str | None = None) -> NodeClaimSpec:
    return NodeClaimSpec(expire_after="5h", termination_grace_period=termination_grace_period)


def expired(cluster: Cluster) -> MethodResult:
    return expiration.compute(cluster.state(), cluster.budget_tracker())


def closed() -> Budget:
    """The budget allows nothing between 9 and 17 o'clock; it is 12."""
    return Budget(nodes="0", schedule="0 9 * * *", duration="8h")


def test_an_expired_node_is_replaced_and_the_next_expiry_is_known(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=old())
    cluster.pod("p", "old")
    cluster.node("young", 1, age=4 * HOUR, spec=old())
    cluster.pod("q", "young")
    result = expired(cluster)
    (action,) = result.commands
    assert action.nodes == ("old",)
    assert [c.pods for c in action.replacements] == [("default/p",)]
    assert result.requeue_at == cluster.state().now + HOUR


def test_it_is_blocked_outside_the_budget_window_and_disrupted_inside(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=old())
    cluster.disruption(budgets=[closed()])
    result = expired(cluster)
    assert result.commands == ()
    assert "budgets" in result.blocked[0].message
    cluster.disruption(budgets=[Budget(nodes="0", schedule="0 1 * * *", duration="8h")])
    assert expired(cluster).commands[0].nodes == ("old",)


def test_blockers_hold_until_the_termination_grace_period_ends(cluster: Cluster) -> None:
    cluster.disruption(budgets=[closed()])
    cluster.node("waits", 1, spec=old(termination_grace_period="2h"))
    cluster.pod("a", "waits", annotations={names.DO_NOT_DISRUPT: "true"})
    cluster.node("goes", 1, age=8 * HOUR, spec=old(termination_grace_period="2h"))
    cluster.pod("b", "goes", annotations={names.DO_NOT_DISRUPT: "true"})
    result = expired(cluster)
    assert [(a.nodes, a.forced) for a in result.commands] == [(("goes",), True)]
    assert [r.node for r in result.blocked] == ["waits"]


def test_a_node_that_waits_for_a_machine_that_never_joined_says_so(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=old())
    cluster.pod("p", "old")
    cluster.node("late", 1, age=HOUR)
    cluster.nodes.pop()
    cluster.claims[-1] = with_fields(cluster.claims[-1], status=NodeClaimStatus(provider_id="aws:///a/i-late"))
    result = expired(cluster)
    assert result.commands == ()
    assert [b.message for b in result.blocked] == [
        "its pods would go to node claim-late, which isn't initialized",
    ]


def test_expire_after_never_never_expires(cluster: Cluster) -> None:
    cluster.node("old", 1, age=10_000 * HOUR)
    assert expired(cluster).commands == ()


def test_nodes_whose_pods_cannot_be_scheduled_elsewhere_stay(cluster: Cluster) -> None:
    cluster.node("old", 1, spec=old())
    cluster.pod("p", "old", node_selector={"disk": "unobtainable"})
    cluster.node("other", 1, spec=old())
    cluster.pod("q", "other")
    result = expired(cluster)
    assert [a.nodes for a in result.commands] == [("other",)]
    assert "can't be scheduled on another node" in result.blocked[0].message


def stamped(cluster: Cluster, version: str) -> None:
    annotations = {names.NODEPOOL_HASH: hash_node_pool(cluster.pool), names.NODEPOOL_HASH_VERSION: version}
    cluster.claims = [with_fields(c, metadata=with_fields(c.metadata, annotations=annotations)) for c in cluster.claims]


def changed(cluster: Cluster, **spec: object) -> None:
    template = NodeClaimTemplate(metadata=TemplateMetadata(labels={"team": "x"}), spec=TemplateSpec(**spec))  # type: ignore[arg-type]  # fields of the struct
    cluster.pool = with_fields(cluster.pool, spec=with_fields(cluster.pool.spec, template=template))


@pytest.mark.parametrize(("version", "drifted"), [(NODEPOOL_HASH_VERSION, True), ("v2", False)])
def test_a_changed_template_is_drift_if_hash_versions_are_equal(
    cluster: Cluster, version: str, *, drifted: bool
) -> None:
    cluster.node("n", 1)
    stamped(cluster, version)
    assert drift.find_candidates(cluster.state()) == ()
    changed(cluster)
    assert bool(drift.find_candidates(cluster.state())) == drifted
    assert bool(drift.compute(cluster.state(), cluster.budget_tracker()).commands) == drifted


def test_a_node_that_the_requirements_no_longer_allow_has_drifted(cluster: Cluster) -> None:
    cluster.node("n", 1)
    only_spot = NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=["spot"])
    changed(cluster, requirements=[only_spot])
    (candidate,) = drift.find_candidates(cluster.state())
    assert names.CAPACITY_TYPE in drift.disruption_message(cluster.state(), candidate)


@pytest.mark.parametrize(("made_from", "drifted"), [("6", True), ("7", False)])
def test_a_node_that_was_made_from_the_pool_as_it_is_now_would_be_replaced_by_one_like_it(
    cluster: Cluster, made_from: str, *, drifted: bool
) -> None:
    cluster.node("n", 1)
    (claim,) = cluster.claims
    annotations = {names.NODEPOOL_GENERATION: made_from}
    cluster.claims[0] = with_fields(claim, metadata=with_fields(claim.metadata, annotations=annotations))
    changed(cluster, requirements=[NodeSelectorRequirement(key=names.CAPACITY_TYPE, operator="In", values=["spot"])])
    cluster.pool = with_fields(cluster.pool, metadata=with_fields(cluster.pool.metadata, generation=7))
    assert bool(drift.find_candidates(cluster.state())) == drifted


def test_images_subnets_and_security_groups_that_are_no_longer_selected_are_drift(cluster: Cluster) -> None:
    cluster.node("n", 1)
    (claim,) = cluster.claims
    cluster.claims = [with_fields(claim, status=with_fields(claim.status, image_id="ami-1"))]
    state = cluster.state()

    def with_status(**status: object) -> EC2NodeClass:
        return EC2NodeClass(status=EC2NodeClassStatus(**status))  # type: ignore[arg-type]  # fields of the struct

    def result(node_class: EC2NodeClass) -> bool:
        seen = type(state)(
            snapshot=state.snapshot,
            now=state.now,
            node_classes={"default": node_class},
            instance_networks={
                claim.status.provider_id: InstanceNetwork(
                    subnet="subnet-1", security_groups=frozenset({"sg-1", "sg-2"})
                )
            },
            is_drifted=node_class_drift,
        )
        return bool(drift.find_candidates(seen))

    assert not result(with_status())
    assert not result(with_status(amis=[ResolvedAMI(id="ami-2"), ResolvedAMI(id="ami-1")]))
    assert result(with_status(amis=[ResolvedAMI(id="ami-2")]))
    assert not result(with_status(subnets=[ResolvedSubnet(id="subnet-1")]))
    assert result(with_status(subnets=[ResolvedSubnet(id="subnet-2")]))
    groups = [ResolvedSecurityGroup(id="sg-2"), ResolvedSecurityGroup(id="sg-1")]
    assert not result(with_status(security_groups=groups))
    assert result(with_status(security_groups=groups[:1]))
    assert result(with_status(security_groups=[*groups, ResolvedSecurityGroup(id="sg-3")]))
