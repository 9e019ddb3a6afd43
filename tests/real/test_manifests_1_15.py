"""Twelve manifests of Karpenter 1.15, applied server-side with Karpenter's definitions and with Tenon's.

Each is in manifests_1_15. Both definitions must lead to the same nodes. Karpenter's are those of the Go module, read
when the test runs; where there is no Go and no module proxy, the test is skipped.
"""

from __future__ import annotations

import base64
import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config import load_kube_config_from_dict

from local.kubelets.behavior import Timing
from local.kubernetes import kinds
from local.kubernetes.conditions import condition_status
from local.kubernetes.object_updates import update_status
from local.kubernetes.objects import timestamp
from local.real.cluster import RealControlPlane
from local.real.go_build import environment, go
from local.real.store import resource
from local.world import Options, World, custom_resource_definitions
from local.world.apply import read_objects
from shared.api import labels
from shared.cluster.client import Client
from tests.real.conftest import MINORS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from local.kubernetes.objects import Obj

MANIFESTS = Path(__file__).parent / "manifests_1_15"
PROVIDER = "github.com/aws/karpenter-provider-aws@v1.15.1"
LIMIT = timedelta(seconds=120)
TIMING = Timing(boot=(2.0, 3.0), restart=(2.0, 3.0), ready=(0.5, 1.0), pull=(0.5, 1.0))
_DOWNLOAD_SECONDS = 120
_OF_THE_MACHINE = {labels.HOSTNAME, labels.ZONE, labels.ZONE_ID, "failure-domain.beta.kubernetes.io/zone"}
REBOOTING = {"key": "karpenter.sh/rebooting", "effect": "NoSchedule"}
READINESS = "readiness.k8s.io/network"


@pytest.fixture(scope="module")
def karpenters_definitions() -> list[Obj]:
    """The definitions of Karpenter's AWS provider."""
    if not go():
        pytest.skip("needs Go to fetch Karpenter's module")
    command = [go(), "mod", "download", "-json", PROVIDER]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
    )
    if done.returncode:
        pytest.skip(f"Go can't fetch {PROVIDER}: {done.stdout[-500:]}{done.stderr[-500:]}")
    folder = Path(json.loads(done.stdout)["Dir"]) / "pkg" / "apis" / "crds"
    return [yaml.safe_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]


@pytest.fixture
def world(kubeconfig: Path | None, kubernetes: str) -> Iterator[World]:
    """A control plane of the newest minor, without NodePools."""
    if kubeconfig is not None or kubernetes != MINORS[-1]:
        pytest.skip("one control plane of our own is enough: definitions don't depend on the minor")
    plane = RealControlPlane(kubernetes=kubernetes)
    options = Options(
        version=kubernetes, concurrency=8, timing=TIMING, context={"reboot": "on"}, control_plane=lambda: plane
    )
    with World(options=options) as running:
        yield running
        assert running.failures() == []
        assert running.dead_letters() == []


def test_each_manifest_leads_to_the_same_nodes_with_karpenters_definitions_as_with_tenons(
    world: World, karpenters_definitions: list[Obj]
) -> None:
    names = sorted(path.stem for path in MANIFESTS.glob("*.yaml"))
    assert len(names) == 12

    outcomes = []
    for definitions in (karpenters_definitions, custom_resource_definitions.load()):
        world.apply(definitions)
        apply(world, names)
        scale(world, "scale", 2)
        remove_readiness_taint(world)
        world.run_until(lambda: all(is_done(world, name) for name in names), limit=LIMIT)
        ((name, boot),) = boots(world, "rebooting")
        begin_reboot(world, "rebooting")
        world.run_until(lambda: has_rebooted(world, "rebooting"), limit=LIMIT)
        ((name_afterwards, boot_afterwards),) = boots(world, "rebooting")
        assert name_afterwards == name
        assert boot_afterwards != boot
        check(world)
        outcomes.append({name: outcome(world, name) for name in names})
        remove(world)

    assert outcomes[0] == outcomes[1]
    for name, (nodes, conditions) in outcomes[0].items():
        assert [c for c in conditions if c[1] != "True"] == [], name
        assert len(nodes) == (2 if name == "scale" else 1), name


def check(world: World) -> None:
    """What each manifest asks for."""
    ((enclave,), (own_limit,), (computed,), (unrepaired,)) = (
        nodes_of(world, name)
        for name in (
            "enclaves",
            "open-kubelet",
            "kubelet-expressions",
            "do-not-repair",
        )
    )
    assert int(enclave["status"]["capacity"]["cpu"]) >= 2
    assert own_limit["status"]["capacity"]["pods"] == "20"
    vcpus = int(computed["status"]["capacity"]["cpu"])
    assert int(computed["status"]["capacity"]["pods"]) <= 10 + vcpus
    assert computed["status"]["allocatable"]["cpu"] == f"{900 * vcpus}m"
    assert unrepaired["metadata"]["annotations"]["karpenter.sh/do-not-repair"] == "true"
    assert [claim["metadata"]["name"] for claim in world.claims() if drifted(claim)] == []
    assert {"Enabled": True} in [template.get("EnclaveOptions") for template in launch_templates(world, "enclaves")]
    for template in launch_templates(world, "ip-prefixes"):
        assert [nic.get("Ipv4PrefixCount") for nic in template["NetworkInterfaces"]] == [2]
    for template in launch_templates(world, "bottlerocket"):
        assert [device["Ebs"]["VolumeSize"] for device in template["BlockDeviceMappings"]] == [6, 20]
    for template in launch_templates(world, "open-kubelet"):
        user_data = base64.b64decode(template["UserData"]).decode()
        assert "topologyManagerPolicy: single-numa-node" in user_data
        assert "containerLogMaxSize: 20Mi" in user_data
    (hashed,) = (obj for obj in node_classes(world) if obj["metadata"]["name"] == "class-status")
    assert hashed["metadata"]["annotations"][labels.NODECLASS_HASH_VERSION] != "v5"


def launch_templates(world: World, node_class: str) -> list[dict[str, Any]]:
    """The data of the launch templates of a class; there is one at least."""
    ec2 = boto3.client("ec2", region_name=world.region)
    versions = ec2.describe_launch_template_versions(Versions=["$Latest"], MaxResults=200)["LaunchTemplateVersions"]
    data: list[dict[str, Any]] = [dict(version["LaunchTemplateData"]) for version in versions]
    own = {"Key": "karpenter.k8s.aws/ec2nodeclass", "Value": node_class}
    templates = [each for each in data if any(own in spec["Tags"] for spec in each["TagSpecifications"])]
    assert templates, node_class
    return templates


def node_classes(world: World) -> list[Obj]:
    return world.store.list(world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"))


def drifted(claim: Obj) -> bool:
    return condition_status(claim, "Drifted") == "True"


def apply(world: World, names: Sequence[str]) -> None:
    """Apply the manifests server-side with strict validation of fields; statuses are written as controllers do."""
    configuration = Configuration()
    load_kube_config_from_dict(yaml.safe_load(world.kubectl_config()), client_configuration=configuration)
    client = Client(configuration)
    for name in names:
        for obj in read_objects(MANIFESTS / f"{name}.yaml", cluster=world.cluster):
            send(client, world, {key: value for key, value in obj.items() if key != "status"})
            if "status" in obj:
                kind = world.store.kind(obj["apiVersion"], obj["kind"])
                world.store.patch(kind, name, {"status": obj["status"]}, subresource="status")
    client.close()


def send(client: Client, world: World, obj: Obj) -> None:
    """Apply one object as ``kubectl apply --server-side`` does."""
    kind, meta = world.store.kind(obj["apiVersion"], obj["kind"]), obj["metadata"]
    path = f"{resource(kind).path(namespace=meta.get('namespace', ''))}/{meta['name']}"
    client.patch(f"{path}?fieldManager=kubectl&force=true&fieldValidation=Strict", obj, kind="apply")


def scale(world: World, pool: str, replicas: int) -> None:
    """``kubectl scale nodepool``."""
    kind = world.store.kind("karpenter.sh/v1", "NodePool")
    world.store.patch(kind, pool, {"spec": {"replicas": replicas}}, subresource="scale")


def remove_readiness_taint(world: World) -> None:
    """Do what the Node Readiness Controller does, once the NodeClaim says that it waits for that."""
    name = "readiness-taint"

    def waits() -> bool:
        conditions = (c for claim in claims_of(world, name) for c in claim.get("status", {}).get("conditions", []))
        return any(c["type"] == "Initialized" and READINESS in c.get("message", "") for c in conditions)

    world.run_until(waits, limit=LIMIT)
    (node,) = nodes_of(world, name)
    taints = [taint for taint in node["spec"]["taints"] if taint["key"] != READINESS]
    assert len(taints) < len(node["spec"]["taints"])
    world.store.patch(kinds.NODES, node["metadata"]["name"], {"spec": {"taints": taints}})


def begin_reboot(world: World, name: str) -> None:
    """Leave the node as Karpenter does that is about to reboot it, without a drain."""
    (node,), (claim,) = nodes_of(world, name), claims_of(world, name)
    taints = [*(node["spec"].get("taints") or []), REBOOTING]
    world.store.patch(kinds.NODES, node["metadata"]["name"], {"spec": {"taints": taints}})
    claim_kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    annotations = {"karpenter.sh/reboot-termination-grace-period": "0s"}
    world.store.patch(claim_kind, claim["metadata"]["name"], {"metadata": {"annotations": annotations}})
    began = {"type": "Rebooting", "status": "True", "reason": "RebootRequested", "message": "KernelReady is False"}
    began["lastTransitionTime"] = timestamp(world.clock.now())
    update_status(world.store, claim_kind, claim, conditions=[*claim["status"]["conditions"], began])


def boots(world: World, name: str) -> list[tuple[str, str]]:
    """The name of each of the manifest's nodes and the ID of its boot."""
    return [(node["metadata"]["name"], node["status"]["nodeInfo"]["bootID"]) for node in nodes_of(world, name)]


def has_rebooted(world: World, name: str) -> bool:
    """Whether the reboot is over, and the node that was rebooted takes pods again."""
    (node,), (claim,) = nodes_of(world, name), claims_of(world, name)
    reasons = {c["type"]: c["reason"] for c in claim["status"]["conditions"]}
    is_tainted = any(taint["key"] == REBOOTING["key"] for taint in node["spec"].get("taints") or [])
    is_initialized = condition_status(claim, "Initialized") == "True"
    return reasons.get("Rebooting") == "RebootSucceeded" and is_initialized and not is_tainted


def is_done(world: World, name: str) -> bool:
    """Whether the manifest's pod runs; of the static NodePool, whether its nodes are initialized."""
    if name != "scale":
        return any(pod["metadata"]["labels"].get("app") == name for pod in world.pods(phase="Running"))
    return sum(labels.INITIALIZED in node["metadata"]["labels"] for node in nodes_of(world, name)) == 2


def nodes_of(world: World, name: str) -> list[Obj]:
    return world.nodes(pool=name)


def claims_of(world: World, name: str) -> list[Obj]:
    return [claim for claim in world.claims() if claim["metadata"]["labels"][labels.NODEPOOL] == name]


def outcome(world: World, name: str) -> tuple[list[Any], list[Any]]:
    """The manifest's nodes without what differs from machine to machine, and the conditions of its class and pool."""
    nodes = [
        (
            {key: value for key, value in node["metadata"]["labels"].items() if key not in _OF_THE_MACHINE},
            sorted((taint["key"], taint["effect"]) for taint in node["spec"].get("taints") or []),
            {key: node["status"]["allocatable"][key] for key in ("cpu", "pods")},
        )
        for node in nodes_of(world, name)
    ]
    kinds_of_row = (("karpenter.k8s.aws/v1", "EC2NodeClass"), ("karpenter.sh/v1", "NodePool"))
    objects = [world.store.find(world.store.kind(*kind), name) for kind in kinds_of_row]
    return nodes, [(c["type"], c["status"]) for obj in objects if obj for c in obj["status"]["conditions"]]


def remove(world: World) -> None:
    """Delete all that the manifests have led to."""
    for kind in (
        kinds.DEPLOYMENTS,
        *(world.store.kind("karpenter.sh/v1", name) for name in ("NodePool", "NodeClaim")),
        world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ):
        for obj in world.store.list(kind):
            meta = obj["metadata"]
            world.store.delete(kind, meta["name"], namespace=meta.get("namespace", ""))
    world.run_until(
        lambda: not (world.nodes() or world.claims() or world.instances() or node_classes(world)), limit=LIMIT
    )
