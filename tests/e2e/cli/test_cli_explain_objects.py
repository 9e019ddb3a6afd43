"""`tenon explain node | nodepool | nodeclaim` in a live cluster: the reason first, and past events and decisions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from cli.demo.faults import Fault
from local.world import sample_objects
from shared.disruption.command import EMPTY
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Shell

CONSOLIDATING = "cli/demo/manifests/consolidation.yaml"


@pytest.fixture
def busy(shell: Shell) -> Shell:
    """Five replicas running on machines of their own."""
    shell.world.apply("cli/demo/manifests/spot-default.yaml")
    shell.world.scale("default", "inflate", 5)
    shell.world.run_until_idle()
    return shell


def _node(shell: Shell) -> str:
    name: str = shell.world.nodes()[0]["metadata"]["name"]
    return name


def _annotate(shell: Shell, kind: Any, name: str, key: str) -> None:
    shell.world.store.patch(kind, name, {"metadata": {"annotations": {key: "true"}}})


def test_a_used_node_is_kept_by_its_nodepools_policy(busy: Shell) -> None:
    result = busy.tenon("explain", "node", _node(busy).partition(".")[0])
    assert result.code == 0, result.err
    assert result.lines[0] == f"Node {_node(busy)} is kept"
    assert result.lines[1] == "  consolidationPolicy: WhenEmpty: NodePool default only consolidates empty nodes"


@pytest.mark.flow
def test_an_empty_node_waits_for_consolidate_after_and_is_deleted(busy: Shell) -> None:
    world, node = busy.world, _node(busy)
    world.scale("default", "inflate", 0)
    world.run_for(timedelta(seconds=12))
    waits = busy.tenon("explain", "node", node)
    assert waits.lines[0].endswith(" waits for consolidateAfter"), waits.out
    assert "it is empty and is disrupted in" in waits.lines[1]
    assert "(consolidateAfter 30s)" in waits.lines[1]
    world.run_until(lambda: any(h.type == "claim terminating" for h in world.timeline.all))
    leaves = busy.tenon("explain", "node", node)
    assert leaves.lines[0].endswith(" is being deleted"), leaves.out
    assert leaves.lines[1].startswith("  Empty: empty for 3")
    assert f"{EMPTY} taken" in leaves.out, "the decision log's last words"


def test_a_nodeclaim_is_explained_in_each_step(shell: Shell) -> None:
    world = shell.world
    world.apply("cli/demo/manifests/spot-default.yaml")
    world.scale("default", "inflate", 1)
    world.run_until(lambda: bool(world.timeline.of("claim launched")))
    name = world.claims()[0]["metadata"]["name"]
    result = shell.tenon("explain", "nodeclaim", name)
    assert result.lines[0] == f"NodeClaim {name} is not registered"
    assert "it times out in 14m" in result.lines[1]
    choice = next(s for s in shell.tenon("explain", "nc", name, "--json").json["checks"] if "why" in s["about"].lower())
    why = {c["what"]: c["detail"] for c in choice["checks"]}
    assert why["needed"].startswith("1 pod with requests of cpu 1")
    assert re.match(r"\$[\d.]+/h, the cheapest of \d+ instance types that suit", why["planned"])
    assert re.search(r"\d+ offerings too small \(such as \S+ spot\)", why["cheaper"])
    bought = r"\S+ spot in us-east-1\w at \$[\d.]+/h"
    launched = rf"{bought} \(planned at \$[\d.]+/h, pods 1, instance types to choose from \d+\)"
    (event,) = events(world, "Launched", kind="NodeClaim")
    assert re.match(launched, event["message"])
    (nominated,) = events(world, "Nominated", kind="Pod")
    assert nominated["message"] == f"Pod should schedule on nodeclaim/{name}, which is launched for it"
    world.run_until_idle()
    assert shell.tenon("explain", f"nc/{name}").lines[0] == f"NodeClaim {name} is initialized"
    missing = shell.tenon("explain", "nodeclaim", "nope")
    assert missing.code == 2
    assert re.search(rf"\(there: .*\b{name}\b", missing.err)


def test_a_nodepool_that_can_launch_and_one_that_can_not(busy: Shell) -> None:
    world = busy.world
    able = busy.tenon("explain", "nodepool", "default")
    assert able.code == 0, able.err
    assert able.lines[0] == "Provisioner default can launch nodes"
    assert able.lines[1] == "  no pending pod needs a node of it"
    pool = world.store.list(world.store.kind("karpenter.sh/v1alpha5", "Provisioner"))[0]
    kind = world.store.kind("karpenter.sh/v1alpha5", "Provisioner")
    world.store.patch(kind, "default", {"spec": {"limits": {"resources": {"cpu": "1"}}}})
    full = busy.tenon("explain", "nodepool", "default")
    assert full.lines[0] == "Provisioner default can't launch nodes"
    assert full.lines[1].startswith("  limit on cpu: ")
    wanted = "providerRef" if "providerRef" in pool["spec"] else "provider"
    world.store.patch(kind, "default", {"spec": {wanted: {"name": "nowhere"}}})
    lost = busy.tenon("explain", "np", "default")
    assert lost.lines[1].startswith("  node class: there is no valid EC2NodeClass or AWSNodeTemplate"), lost.out
    assert busy.tenon("explain", "nodepool", "nope").code == 2


def test_what_blocks_a_disruption_is_named(busy: Shell) -> None:
    world = busy.world
    kind = world.store.kind("v1", "Node")
    _annotate(busy, kind, _node(busy), "karpenter.sh/do-not-disrupt")
    result = busy.tenon("explain", "node", _node(busy), "--json").json
    assert result["criterion"] == "may be disrupted"
    assert result["reason"] == "may be disrupted: annotation karpenter.sh/do-not-disrupt is set"


def test_missing_capacity_is_the_reason_in_a_live_cluster(shell: Shell) -> None:
    world = shell.world
    Fault.parse("spot-capacity=all:0").arm(world)
    world.apply("cli/demo/manifests/spot-default.yaml")
    kind = world.store.kind("karpenter.sh/v1alpha5", "Provisioner")
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["c5.large"]},
    ]
    world.store.patch(kind, "default", {"spec": {"requirements": requirements}})
    world.scale("default", "inflate", 1)
    world.run_until(lambda: any(h.type == "call" and h.name == "ec2 CreateFleet" for h in world.timeline.all))
    world.settle()
    waiting = world.pending()[0]["metadata"]["name"]
    result = shell.tenon("explain", "pod", waiting)
    assert result.code == 0, result.err
    assert result.lines[0] == f"Pod default/{waiting} is unschedulable"
    assert result.lines[1].startswith("  NodePool default: EC2 has no capacity for any suitable offering")


def test_a_node_pool_of_another_provisioner_is_said_to_be_its(busy: Shell) -> None:
    pool = sample_objects.node_pool({}, name="general-purpose")
    pool["spec"]["template"]["spec"]["nodeClassRef"] = {
        "group": "eks.amazonaws.com",
        "kind": "NodeClass",
        "name": "default",
    }
    busy.world.apply([pool])
    result = busy.tenon("explain", "nodepool", "general-purpose")
    assert result.code == 0, result.err
    assert result.lines[0] == "NodePool general-purpose isn't Tenon's"
    assert result.lines[1].startswith("  its nodes are launched by EKS Auto Mode, not by Tenon")
