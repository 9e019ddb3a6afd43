"""`tenon migrate karpenter`: what differs for the objects that a cluster has, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.integration.cli.command import call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

Json = dict[str, Any]


def node_pool(name: str = "default", *, template: Json | None = None, disruption: Json | None = None) -> Json:
    node_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    inner = {"nodeClassRef": node_class, "requirements": [], "expireAfter": "Never", **(template or {})}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s", **(disruption or {})},
            "template": {"spec": inner},
        },
    }


def node_class(**spec: Any) -> Json:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1234567a"}],
            "securityGroupSelectorTerms": [{"id": "sg-1234567a"}],
            "kubelet": {"maxPods": 58},
            **spec,
        },
    }


def karpenter(*arguments: str, **environment: str) -> Json:
    env = [{"name": name, "value": value} for name, value in environment.items()]
    container = {"name": "controller", "args": list(arguments), "env": env}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "karpenter", "namespace": "kube-system"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def report(tmp_path: Path, *objects: Json) -> CommandResult:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return call("migrate", "karpenter", "-f", str(path))


def test_objects_that_mean_the_same_are_said_to(tmp_path: Path) -> None:
    done = report(tmp_path, node_pool(), node_class())
    assert (done.code, done.err) == (0, "")
    assert done.lines == ["NodePool default", "  means the same", "EC2NodeClass default", "  means the same"]


@pytest.mark.parametrize(
    ("obj", "line"),
    [
        (node_pool(disruption={"consolidationPolicy": "Balanced"}), "consolidationPolicy Balanced: "),
        (node_pool(template={"expireAfter": "720h"}), "expireAfter 720h: an expired node is replaced first"),
        (node_class(role="KarpenterNodeRole"), "unless it is Tenon's own, deploy with -c nodeRoles=KarpenterNodeRole"),
        (node_class(instanceProfile="nodes"), 'spec.instanceProfile "nodes": deploy with -c nodeRoles=ROLE'),
        (node_class(kubelet={}), "spec.kubelet.maxPods is not given"),
        (node_class(ipPrefixCount=2), "spec.ipPrefixCount: "),
        (karpenter("--preference-policy=Ignore"), "preference-policy=Ignore: "),
        (karpenter(MIN_VALUES_POLICY="BestEffort"), "min-values-policy=BestEffort: "),
        (karpenter(FEATURE_GATES="NodeRepair=true"), "gate NodeRepair=true: give each NodePool annotation"),
        (karpenter("--aws-feature-gates", "RebootForRepair=true"), "deploy with -c reboot=on"),
        (karpenter(), "gate SpotToSpotConsolidation=false: "),
        (karpenter(FEATURE_GATES="Invented=true"), "gate Invented=true: unknown"),
    ],
)
def test_a_value_that_differs_is_named(tmp_path: Path, obj: Json, line: str) -> None:
    done = report(tmp_path, obj)
    assert done.code == 0
    assert line in done.out
    assert len(done.lines) == 2 + (obj["kind"] == "Deployment" and "SpotToSpot" not in line)


def test_a_flag_counts_before_its_variable_and_defaults_differ_in_nothing(tmp_path: Path) -> None:
    same = karpenter(
        "--preference-policy=Respect",
        PREFERENCE_POLICY="Ignore",
        FEATURE_GATES="SpotToSpotConsolidation=true,ReservedCapacity=true",
    )
    assert report(tmp_path, same).lines == ["Deployment kube-system/karpenter", "  means the same"]


def test_node_pools_of_equal_weight_are_named(tmp_path: Path) -> None:
    done = report(tmp_path, node_pool("a"), node_pool("b"))
    assert done.out.count("spec.weight 1: NodePools of equal weight compete by price") == 2


def test_what_tenon_cannot_use_is_the_exit_code(tmp_path: Path) -> None:
    done = report(tmp_path, node_pool(), node_class(inventedField="x"))
    assert done.code == 1
    assert done.lines[:2] == [
        "EC2NodeClass default",
        "  spec.inventedField: this field is not supported; nodes would be launched without it",
    ]
    assert "1 object" in done.err


def test_json_has_the_same_as_the_text(tmp_path: Path) -> None:
    objects = [node_pool(), node_class(inventedField="x"), karpenter("--preference-policy=Ignore")]
    text = report(tmp_path, *objects)
    done = call("migrate", "karpenter", "-f", str(tmp_path / "objects.yaml"), "--json")
    assert (done.code, done.err) == (text.code, text.err)
    printed = done.json
    assert printed["refused"] == 1
    lines = [
        line
        for each in printed["objects"]
        for line in (
            " ".join([each["kind"], "/".join(filter(None, (each["namespace"], each["name"])))]),
            *(f"  {difference}" for difference in each["differences"] or ["means the same"]),
        )
    ]
    assert lines == text.lines
    assert [each["refused"] for each in printed["objects"]] == [True, False, False]


def test_other_deployments_are_none_of_karpenters(tmp_path: Path) -> None:
    web = karpenter()
    web["metadata"]["name"] = "web"
    done = report(tmp_path, web)
    assert done.code == 2
    assert "there is no NodePool, EC2NodeClass, NodeOverlay or Deployment of Karpenter" in done.err
