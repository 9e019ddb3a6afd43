"""CustomResourceDefinitions that belong to neither Tenon nor Karpenter are not overwritten by a deployment."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from infra import assembly
from infra.cluster.kubernetes import cluster_manifests, deployment_access, kinds_check
from local.aws import backends
from local.kubernetes import kinds
from local.kubernetes.apiserver.http import Response
from tests.infra import custom_resource_deployment
from tests.infra.resolved_template import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.infra.custom_resource_deployment import Deployment

NAMES = [definition["metadata"]["name"] for definition in cluster_manifests.kinds()]
TYPE = "Custom::TenonKindsCheck"
NODE_POOLS = "nodepools.karpenter.sh"
HELM = {"app.kubernetes.io/managed-by": "Helm"}
GENERATED = {"controller-gen.kubebuilder.io/version": "v0.19.0"}


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    with custom_resource_deployment.deployment(
        monkeypatch, kinds_check.handle, access=deployment_access.kinds_check(), group=deployment_access.KINDS_CHECK
    ) as running:
        yield running


def request(deployment: Deployment, kind: str) -> dict[str, Any]:
    return deployment.request(kind, TYPE, Names=NAMES)


def store(deployment: Deployment, metadata: dict[str, Any], name: str = NODE_POOLS) -> None:
    """Store a definition, that of NodePools by default, as somebody else applied it."""
    definition = copy.deepcopy(next(d for d in cluster_manifests.kinds() if d["metadata"]["name"] == name))
    definition["metadata"] = {"name": name, **metadata}
    deployment.server.store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param(None, id="no definition yet"),
        pytest.param({"annotations": {"tenon.sh/applied-by": "tenon"}}, id="Tenon's"),
        pytest.param({"annotations": GENERATED}, id="Karpenter's, by kubectl"),
        pytest.param(
            {"labels": HELM, "annotations": {**GENERATED, "meta.helm.sh/release-name": "karpenter-crd"}},
            id="Karpenter's, by Helm",
        ),
        pytest.param(
            {"labels": HELM, "annotations": {"meta.helm.sh/release-name": "tenon"}}, id="Tenon's, by its chart"
        ),
    ],
)
def test_definitions_of_tenon_and_karpenter_may_be_overwritten(
    deployment: Deployment, metadata: dict[str, Any] | None
) -> None:
    if metadata is not None:
        store(deployment, metadata)
    answer = request(deployment, "Create")
    assert (answer["Status"], answer["Reason"]) == ("SUCCESS", "")
    assert answer["PhysicalResourceId"] == custom_resource_deployment.LOGICAL_ID


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"labels": {"app.kubernetes.io/managed-by": "eks"}, "annotations": GENERATED}, "eks"),
        (
            {"labels": HELM, "annotations": {"meta.helm.sh/release-name": "other-provider"}},
            "Helm release other-provider",
        ),
        ({"annotations": GENERATED, "managedFields": [{"manager": "eks", "operation": "Apply"}]}, "EKS Auto Mode"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Operator", "name": "them", "uid": "1"}]},
            "Operator them",
        ),
        ({}, "an unknown owner"),
    ],
)
def test_a_definition_of_another_owner_fails_the_deployment_with_its_name(
    deployment: Deployment, metadata: dict[str, Any], owner: str
) -> None:
    store(deployment, metadata)
    for kind in ("Create", "Update"):
        answer = request(deployment, kind)
        assert answer["Status"] == "FAILED"
        assert answer["Reason"] == (
            f"CustomResourceDefinition {NODE_POOLS} belongs to {owner}, not to Tenon or Karpenter. "
            "Deploy with -c kinds=kept to leave them as they are"
        )
    assert request(deployment, "Delete")["Status"] == "SUCCESS"


@pytest.mark.parametrize(
    ("metadata", "owner"),
    [
        ({"annotations": GENERATED}, "another autoscaler"),
        (
            {"labels": HELM, "annotations": {**GENERATED, "meta.helm.sh/release-name": "karpenter-crd"}},
            "karpenter-crd",
        ),
    ],
)
def test_a_definition_of_capacity_buffers_that_is_not_tenons_is_never_overwritten(
    deployment: Deployment, metadata: dict[str, Any], owner: str
) -> None:
    store(deployment, metadata, kinds_check.CAPACITY_BUFFERS)
    answer = request(deployment, "Create")
    assert answer["Status"] == "FAILED"
    assert f"{kinds_check.CAPACITY_BUFFERS} belongs to {owner}" in answer["Reason"]
    assert "Deploy with -c capacityBuffers=kept" in answer["Reason"]


def test_tenons_own_definition_of_capacity_buffers_is_renewed(deployment: Deployment) -> None:
    store(deployment, {"annotations": {"tenon.sh/applied-by": "tenon"}}, kinds_check.CAPACITY_BUFFERS)
    assert request(deployment, "Create")["Status"] == "SUCCESS"


def test_auto_modes_definitions_are_known_by_the_cluster_too(deployment: Deployment) -> None:
    store(deployment, {"annotations": GENERATED})
    definitions = deployment.server.store.list(kinds.CUSTOM_RESOURCE_DEFINITIONS)
    (sentence,) = kinds_check.ownership_errors(definitions, auto_mode=True)
    assert sentence == f"CustomResourceDefinition {NODE_POOLS} belongs to EKS Auto Mode, not to Tenon or Karpenter"


@pytest.mark.parametrize("status", [401, 403])
def test_the_check_waits_until_the_cluster_knows_its_access_entry(deployment: Deployment, status: int) -> None:
    denials = [Response(status), Response(status)]
    deployment.server.intercept = lambda _: denials.pop() if denials else None
    assert request(deployment, "Create")["Status"] == "SUCCESS"
    assert denials == []


def test_a_cluster_that_cannot_be_read_fails_the_deployment_at_once(deployment: Deployment) -> None:
    backends.eks("us-east-1").clusters["demo"].endpoint = "https://127.0.0.1:1"
    answer = request(deployment, "Create")
    assert answer["Status"] == "FAILED"
    assert "can't be read (URLError" in answer["Reason"]


def applied(**context: str) -> dict[str, dict[str, Any]]:
    """The resources of a stack that applies its objects."""
    with_image = {"bundle": "source", "relay": "pod", "relayImage": "registry.example/tenon-relay:1", **context}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=with_image)
    resources: dict[str, dict[str, Any]] = json.loads((folder / "tenon-demo.template.json").read_text())["Resources"]
    return resources


def test_the_stack_checks_before_it_applies_and_with_rights_to_read_only() -> None:
    resources = applied()
    (definitions,) = (r for id_, r in resources.items() if id_.startswith("ClusterSideKinds"))
    ((check_id, check),) = ((id_, r) for id_, r in resources.items() if r["Type"] == TYPE)
    assert definitions["DependsOn"] == [check_id]
    assert check["Properties"]["Names"] == NAMES
    (policy,) = (
        r
        for id_, r in resources.items()
        if id_.startswith("ClusterSideOwnerCheckRole") and r["Type"] == "AWS::IAM::Policy"
    )
    actions = {a for s in resolved(policy["Properties"])["PolicyDocument"]["Statement"] for a in _listed(s["Action"])}
    assert actions == {"logs:CreateLogStream", "logs:PutLogEvents", "eks:DescribeCluster"}
    (role, _) = deployment_access.kinds_check()
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get"}
    assert role["rules"][0]["resourceNames"] == NAMES


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_the_checks_code_is_what_it_imports_and_nothing_else() -> None:
    with_image = {"bundle": "source", "relay": "pod", "relayImage": "registry.example/tenon-relay:1"}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=with_image)
    (function,) = (
        r
        for id_, r in applied().items()
        if id_.startswith("ClusterSideOwnerCheckFunction") and r["Type"] == "AWS::Lambda::Function"
    )
    code = folder / f"asset.{function['Properties']['Code']['S3Key'].removesuffix('.zip')}"
    assert {str(path.relative_to(code)) for path in code.rglob("*") if path.is_file()} == {
        "infra/__init__.py",
        "infra/cluster/__init__.py",
        "infra/cluster/kubernetes/__init__.py",
        "infra/cluster/kubernetes/custom_resource.py",
        "infra/cluster/kubernetes/kinds_check.py",
        "shared/__init__.py",
        "shared/cluster/__init__.py",
        "shared/cluster/eks_token.py",
    }


def test_where_definitions_are_kept_nothing_is_checked() -> None:
    assert not [r for r in applied(kinds="kept").values() if r["Type"] == TYPE]


def test_a_definition_of_capacity_buffers_that_is_kept_is_neither_checked_nor_applied() -> None:
    resources = applied(capacityBuffers="kept").values()
    (check,) = [r for r in resources if r["Type"] == TYPE]
    assert check["Properties"]["Names"] == [name for name in NAMES if name != kinds_check.CAPACITY_BUFFERS]
    manifests = [json.dumps(r) for r in resources if r["Type"] == "Custom::AWSCDK-EKS-KubernetesResource"]
    assert not any('"kind": "CustomResourceDefinition"' in m and kinds_check.CAPACITY_BUFFERS in m for m in manifests)
