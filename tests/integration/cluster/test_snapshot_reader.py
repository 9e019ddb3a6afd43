"""The snapshot for decisions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from local.kubernetes.apiserver.http import Response
from shared.api.kubernetes import Pod
from shared.cluster import listing, resources
from shared.cluster.client import PAGE_SIZE
from shared.cluster.errors import UnavailableError
from shared.cluster.snapshot_reader import read_snapshot
from shared.cluster.watched_objects import list_pods_on_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.apiserver.http import Request
    from local.kubernetes.apiserver.server import Server
    from shared.cluster.client import Client
    from tests.integration.cluster.conftest import Clock

CLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def pool_spec(**requirement: object) -> dict[str, object]:
    requirements = [requirement] if requirement else []
    return {"template": {"spec": {"nodeClassRef": CLASS_REF, "requirements": requirements}}}


def test_kinds_that_the_cluster_does_not_have_are_empty(client: Client, clock: Clock) -> None:
    snapshot = read_snapshot(client, now=clock.now())
    assert snapshot.taken_at == clock.now()
    assert not snapshot.node_pools
    assert not snapshot.node_claims
    assert not snapshot.invalid
    assert {n.metadata.name for n in snapshot.namespaces} >= {"default", "kube-system"}


@pytest.mark.usefixtures("karpenter")
def test_the_snapshot_has_all_kinds(
    client: Client, clock: Clock, add: Callable[..., None], add_pod: Callable[..., None]
) -> None:
    add_pod("pending")
    add_pod("bound", nodeName="n1")
    add(resources.NODES, "n1")
    add(resources.NODE_POOLS, "pool", spec=pool_spec())
    add(resources.NODE_CLASSES, "default", spec={"role": "node", **SELECTORS})
    add(resources.NODE_CLAIMS, "claim", spec={"nodeClassRef": CLASS_REF, "requirements": []})
    add(resources.CSI_NODES, "n1", spec={"drivers": None})
    add(resources.STORAGE_CLASSES, "gp3", provisioner="ebs.csi.aws.com")
    snapshot = read_snapshot(client, now=clock.now())
    assert {p.key: p.spec.node_name for p in snapshot.pods} == {"default/pending": "", "default/bound": "n1"}
    assert [n.metadata.name for n in snapshot.nodes] == ["n1"]
    assert [p.name for p in snapshot.node_pools] == ["pool"]
    assert [c.name for c in snapshot.node_classes] == ["default"]
    assert [c.name for c in snapshot.node_claims] == ["claim"]
    assert [c.metadata.name for c in snapshot.csi_nodes] == ["n1"]
    assert [s.provisioner for s in snapshot.storage_classes] == ["ebs.csi.aws.com"]
    assert snapshot.invalid == ()


@pytest.mark.usefixtures("karpenter")
def test_csi_drivers_are_read_where_a_node_lacks_one_that_another_has(
    client: Client, clock: Clock, add: Callable[..., None]
) -> None:
    add(resources.CSI_DRIVERS, "ebs.csi.aws.com", spec={"preventPodSchedulingIfMissing": True})
    installed = [{"name": "ebs.csi.aws.com", "nodeID": "i-1"}]
    add(resources.CSI_NODES, "n1", spec={"drivers": installed})
    add(resources.CSI_NODES, "n2", spec={"drivers": installed})
    assert read_snapshot(client, now=clock.now()).csi_drivers == ()
    add(resources.CSI_NODES, "n3", spec={"drivers": None})
    (driver,) = read_snapshot(client, now=clock.now()).csi_drivers
    assert driver.spec.prevent_pod_scheduling_if_missing


SELECTORS: dict[str, object] = {
    "amiSelectorTerms": [{"alias": "al2023@latest"}],
    "subnetSelectorTerms": [{"tags": {"a": "b"}}],
    "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
}


def test_finished_pods_are_not_in_the_snapshot(client: Client, clock: Clock, add_pod: Callable[..., None]) -> None:
    for name, phase in (("done", "Succeeded"), ("broken", "Failed"), ("runs", "Running")):
        add_pod(name, nodeName="n1")
        path = resources.PODS.path(name, namespace="default", subresource="status")
        client.patch(path, {"status": {"phase": phase}})
    assert [p.key for p in read_snapshot(client, now=clock.now()).pods] == ["default/runs"]
    assert [p.key for p in list_pods_on_node(client, "n1").objects] == ["default/runs"]


@pytest.mark.usefixtures("karpenter")
def test_an_invalid_pool_does_not_hide_the_others(client: Client, clock: Clock, add: Callable[..., None]) -> None:
    add(resources.NODE_POOLS, "good", spec=pool_spec(key="kubernetes.io/arch", operator="In", values=["arm64"]))
    add(resources.NODE_POOLS, "bad", spec=pool_spec(key="kubernetes.io/arch", operator=7))
    add(resources.NODE_CLAIMS, "bad", spec={"nodeClassRef": "not a reference"})
    snapshot = read_snapshot(client, now=clock.now())
    assert [p.name for p in snapshot.node_pools] == ["good"]
    bad = {str(invalid.ref): invalid.problems for invalid in snapshot.invalid}
    assert set(bad) == {"NodePool bad", "NodeClaim bad"}
    assert "operator" in bad["NodePool bad"][0]


@pytest.mark.usefixtures("karpenter")
def test_legacy_kinds_are_converted_unless_a_v1_object_has_their_name(
    client: Client, clock: Clock, add: Callable[..., None]
) -> None:
    for name in ("old", "both"):
        add(resources.PROVISIONERS, name, spec={"providerRef": {"name": name}})
        add(resources.NODE_TEMPLATES, name, spec={"subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}})
    add(resources.NODE_POOLS, "both", spec=pool_spec())
    snapshot = read_snapshot(client, now=clock.now())
    assert {(p.kind, p.name) for p in snapshot.node_pools} == {("NodePool", "both"), ("Provisioner", "old")}
    assert {(c.kind, c.name) for c in snapshot.node_classes} == {
        ("AWSNodeTemplate", "old"),
        ("AWSNodeTemplate", "both"),
    }
    [superseded] = snapshot.invalid
    assert str(superseded.ref) == "Provisioner both"
    assert "NodePool both, which is used instead" in superseded.problems[0]
    assert superseded.is_superseded


def test_a_list_that_expires_while_paging_is_restarted(
    server: Server, client: Client, add_pod: Callable[..., None]
) -> None:
    for i in range(PAGE_SIZE + 1):
        add_pod(f"p{i:04}")
    expired = json.dumps({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}).encode()
    faults = [Response(410, expired)]

    def intercept(request: Request) -> Response | None:
        return faults.pop() if faults and "continue" in request.query else None

    server.intercept = intercept
    pods = listing.list_objects(client, resources.PODS, Pod)
    assert faults == []
    assert len({p.key for p in pods.objects}) == len(pods.objects) == PAGE_SIZE + 1


def test_a_failing_server_gives_no_partial_snapshot(server: Server, client: Client, clock: Clock) -> None:
    server.intercept = lambda request: Response(503) if request.resource == "nodes" else None
    with pytest.raises(UnavailableError):
        read_snapshot(client, now=clock.now())


@pytest.mark.usefixtures("karpenter")
def test_pods_are_listed_before_claims_and_claims_before_nodes(server: Server, client: Client, clock: Clock) -> None:
    listed: list[str] = []
    server.intercept = lambda request: listed.append(request.resource.partition(".")[0])
    read_snapshot(client, now=clock.now())
    assert listed.index("pods") < listed.index("nodeclaims") < listed.index("nodes")
