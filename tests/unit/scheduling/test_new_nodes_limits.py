"""What new nodes lack: ports that DaemonSets take, devices that no type has, more volumes than a type attaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from shared.base.struct import with_fields
from shared.instance_types.allocatable import attachable_volumes
from shared.instance_types.catalog import Hardware

if TYPE_CHECKING:
    from types import ModuleType

Decide = Callable[[dict[str, Any]], dict[str, Any]]


def daemon_set(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": "kube-system"},
        "spec": {"selector": {}, "template": {"metadata": {"labels": {"app": "agent"}}, "spec": spec}},
    }


def listening(name: str, **port: object) -> dict[str, Any]:
    return {"name": name, "image": "x", "ports": [port], "resources": {"requests": {"cpu": "100m"}}}


@pytest.mark.parametrize(
    ("port", "wanted", "fits"),
    [
        ({"containerPort": 7946}, {"hostPort": 7946}, False),
        ({"containerPort": 7946, "protocol": "UDP"}, {"hostPort": 7946}, True),
        ({"containerPort": 7946, "protocol": "UDP"}, {"hostPort": 7946, "protocol": "UDP"}, False),
        (
            {"containerPort": 7946, "hostPort": 7946, "hostIP": "10.0.0.9"},
            {"hostPort": 7946, "hostIP": "10.0.0.8"},
            True,
        ),
        ({"containerPort": 7946}, {"containerPort": 7946}, True),
    ],
)
@pytest.mark.parametrize("part", ["containers", "initContainers"])
def test_container_ports_of_a_daemon_set_on_the_host_network_are_host_ports(
    decide: Decide, clusters: ModuleType, port: dict[str, Any], wanted: dict[str, Any], part: str, *, fits: bool
) -> None:
    containers = {"containers": [listening("main", containerPort=1)]}
    containers[part] = [{**listening("main", **port), **({"restartPolicy": "Always"} if part != "containers" else {})}]
    agent = daemon_set(hostNetwork=True, **containers)
    (pod,) = clusters.pods("api", 1)
    pod["spec"]["containers"][0]["ports"] = [wanted]
    decision = decide(clusters.document(clusters.pool(), agent, [pod]))
    assert bool(decision["nodeClaims"]) == fits
    named = f"host ports are in use: {wanted.get('hostPort')}/{wanted.get('protocol', 'TCP')}"
    assert fits or named in decision["errors"]["default/api-0000"]


def test_ports_of_a_daemon_set_on_its_own_network_are_no_host_ports(decide: Decide, clusters: ModuleType) -> None:
    (pod,) = clusters.pods("api", 1)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    agent = daemon_set(containers=[listening("main", containerPort=80)])
    assert decide(clusters.document(clusters.pool(), agent, [pod]))["errors"] == {}


@pytest.mark.parametrize("amount", ["1", "4"])
def test_a_daemon_set_whose_device_no_type_has_keeps_no_pod_from_new_nodes(
    decide: Decide, clusters: ModuleType, amount: str
) -> None:
    requests = {"example.com/fuse": amount, "cpu": "500m"}
    agent = daemon_set(containers=[{"name": "c", "image": "x", "resources": {"requests": requests}}])
    decision = decide(clusters.document(clusters.pool(), agent, clusters.pods("api", 3)))
    assert decision["errors"] == {}


def test_a_daemon_set_for_a_device_takes_room_only_on_types_that_have_it(decide: Decide, clusters: ModuleType) -> None:
    document = clusters.document(clusters.pool(), clusters.pods("api", 2, cpu="1500m"))
    with_device = clusters.instance_type("p1.xlarge", 4, 16, 2.0)
    with_device["capacity"]["example.com/card"] = "1"
    document["instanceTypes"] = [clusters.instance_type("c1.xlarge", 4, 8, 0.2), with_device]
    requests = {"example.com/card": "1", "cpu": "3"}
    agent = daemon_set(containers=[{"name": "c", "image": "x", "resources": {"requests": requests}}])
    document["objects"].append(agent)
    decision = decide(document)
    assert [c["instanceTypes"] for c in decision["nodeClaims"]] == [["c1.xlarge"]]


NITRO = Hardware(
    name="c5.xlarge", arch="amd64", vcpus=4, memory_mib=8192, interfaces=4, addresses=15, ebs_attachments=27
)


def test_a_type_attaches_what_ec2_says_less_a_second_interface_and_the_nodes_own_volumes() -> None:
    assert attachable_volumes(NITRO, own_volumes=1) == 25
    assert attachable_volumes(NITRO, own_volumes=2) == 24
    dedicated = with_fields(NITRO, ebs_attachments=32, shared_attachments=False)
    assert attachable_volumes(dedicated, own_volumes=1) == 31
    assert attachable_volumes(with_fields(NITRO, ebs_attachments=0), own_volumes=1) is None
