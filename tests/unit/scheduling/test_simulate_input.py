"""`tenon simulate` reads several files, lists, YAML, JSON and gzip, and prints exactly the contract."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from cli.main import app
from tests.unit.instance_types.node_overlays import manifest

if TYPE_CHECKING:
    from types import ModuleType

Raw = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def run(*paths: Path, stdin: bytes | None = None, code: int = 0) -> tuple[Raw, str]:
    done = CliRunner().invoke(app, ["simulate", *map(str, paths), "--json"], input=stdin)
    assert done.exit_code == code, done.output
    return (json.loads(done.stdout) if not code else {}), done.stderr


def plain(decision: Raw) -> Raw:
    return {k: v for k, v in decision.items() if k != "stats"}


@pytest.fixture
def parts(clusters: ModuleType) -> Raw:
    document: Raw = clusters.document(clusters.pool(), clusters.pods("web", 5))
    return document


def test_one_document_several_files_lists_yaml_and_gzip_are_equivalent(parts: Raw, tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(parts))
    expected, _ = run(whole)
    catalog, pods, pools = tmp_path / "catalog.json.gz", tmp_path / "pods.yaml", tmp_path / "pool.yml"
    catalog.write_bytes(gzip.compress(json.dumps({"instanceTypes": parts["instanceTypes"]}).encode()))
    listed = {"apiVersion": "v1", "kind": "List", "items": [o for o in parts["objects"] if o["kind"] == "Pod"]}
    pods.write_text(yaml.safe_dump(listed))
    pools.write_text(yaml.safe_dump_all([o for o in parts["objects"] if o["kind"] == "NodePool"]))
    assert plain(run(catalog, pods, pools)[0]) == plain(expected)
    assert plain(run(pools, pods, catalog)[0]) == plain(expected)
    packed = tmp_path / "whole.yaml.gz"
    packed.write_bytes(gzip.compress(yaml.safe_dump(parts).encode()))
    assert plain(run(packed)[0]) == plain(expected)
    assert plain(run(Path("-"), stdin=json.dumps(parts).encode())[0]) == plain(expected)


def test_a_legacy_provisioner_gets_nodes_too(parts: Raw, tmp_path: Path) -> None:
    spec = {"providerRef": {"name": "default"}, "limits": {"resources": {"cpu": "100"}}}
    provisioner = {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": "default"},
        "spec": spec,
    }
    parts["objects"] = [provisioner, *(o for o in parts["objects"] if o["kind"] == "Pod")]
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(parts))
    decision, _ = run(path)
    assert decision["errors"] == {}
    assert {claim["nodePool"] for claim in decision["nodeClaims"]} == {"default"}


def test_the_output_has_exactly_the_fields_of_the_contract(parts: Raw, tmp_path: Path, clusters: ModuleType) -> None:
    parts["objects"] += [clusters.node("old"), *clusters.pods("big", 1, "400")]
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(parts))
    decision, _ = run(path)
    assert list(decision) == ["nodeClaims", "existingNodes", "errors", "stats"]
    assert list(decision["existingNodes"]) == ["old"]
    assert list(decision["errors"]) == ["default/big-0000"]
    parts["objects"] = [o for o in parts["objects"] if o["kind"] != "Node"]
    path.write_text(json.dumps(parts))
    for claim in run(path)[0]["nodeClaims"]:
        fields = {"nodePool", "pods", "instanceTypes", "requirements", "requests", "labels", "taints", "cheapest"}
        assert set(claim) == fields
        assert set(claim["cheapest"]) == {"instanceType", "zone", "capacityType", "price"}
        assert claim["cheapest"]["instanceType"] == claim["instanceTypes"][0]


def test_instance_types_may_be_listed_by_nodepool(parts: Raw, tmp_path: Path) -> None:
    parts["instanceTypesForNodePool"] = {"default": ["m1.large", "m1.xlarge"]}
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(parts))
    decision, _ = run(path)
    assert {t for c in decision["nodeClaims"] for t in c["instanceTypes"]} <= {"m1.large", "m1.xlarge"}


def test_node_overlays_decide_prices_and_a_conflict_is_said(parts: Raw, tmp_path: Path) -> None:
    path = tmp_path / "whole.json"
    selected = ("node.kubernetes.io/instance-type", "In", ["m1.2xlarge"])
    parts["objects"] += [manifest("cheap", selected, price="0.0001"), manifest("again", selected, price="5")]
    path.write_text(json.dumps(parts))
    decision, shown = run(path)
    assert {(c["cheapest"]["instanceType"], c["cheapest"]["price"]) for c in decision["nodeClaims"]} == {
        ("m1.2xlarge", 0.0001)
    }
    assert "NodeOverlay again: NodeOverlay cheap of the same weight 0 sets the price" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("a: [", "line 2: did not find expected node content"),
        ("[1]", "expected an object"),
        ('{"spec": {}}', "neither a Kubernetes object"),
        ('{"objects": {}}', "objects must be a list"),
        ('{"instanceTypes": [{"name": "x"}]}', "instanceTypes[0]"),
        ('{"objects": [], "options": {"preferencePolicy": "Maybe"}}', "preferencePolicy"),
    ],
)
def test_an_invalid_file_is_named_with_the_problem(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    _, conditions = run(path, code=2)
    assert words in conditions
    assert run(tmp_path / "absent.json", code=2)[1].count("absent.json") >= 1


BAD_PODS: list[tuple[Raw, str]] = [
    ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "1 core"}}}]}, '"1 core" is not a quantity'),
    ({"containers": [{"name": "a", "resources": {"requests": {"cpu": "-1"}}}]}, "negative amount of cpu"),
    (
        {"nodeSelector": {ZONE: "z-a"}, "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z-b"]}]}]}}}},
        f"conflict: no value is allowed for {ZONE}",
    ),
    (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": ZONE, "operator": "Near", "values": ["z-b"]}]}]}}}},
        '"Near" is not an operator',
    ),
    (
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "cpu", "operator": "Gt", "values": ["many"]}]}]}}}},
        "cpu Gt needs one integer",
    ),
    ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}]}, "default/gone not found"),
    ({"containers": "none"}, "the pod can't be read"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "words"), BAD_PODS, ids=[w for _, w in BAD_PODS])
def test_an_invalid_pod_gets_a_reason_and_the_others_are_scheduled(
    parts: Raw, tmp_path: Path, clusters: ModuleType, spec: Raw, words: str
) -> None:
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(parts))
    expected, _ = run(path)
    bad = clusters.pods("bad", 1)
    bad[0]["spec"].update(spec)
    parts["objects"][1:1] = bad
    path.write_text(json.dumps(parts))
    decision, _ = run(path)
    assert list(decision["errors"]) == ["default/bad-0000"]
    assert words in decision["errors"]["default/bad-0000"]
    assert decision["nodeClaims"] == expected["nodeClaims"]


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ([{"key": ZONE, "operator": "Near", "values": ["z-a"]}], "Near"),
        ([{"key": ZONE, "operator": "In", "values": []}], "In needs at least one value"),
        (
            [
                {"key": ZONE, "operator": "In", "values": ["z-a"]},
                {"key": ZONE, "operator": "NotIn", "values": ["z-a"]},
            ],
            ZONE,
        ),
    ],
)
def test_an_invalid_nodepool_is_reported_and_the_others_are_used(
    parts: Raw, tmp_path: Path, clusters: ModuleType, requirements: list[Raw], words: str
) -> None:
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(parts))
    expected, _ = run(path)
    parts["objects"].append(clusters.pool("bad", weight=100, requirements=requirements))
    path.write_text(json.dumps(parts))
    decision, _ = run(path)
    assert decision["nodeClaims"] == expected["nodeClaims"]
    parts["objects"] = [o for o in parts["objects"] if o["metadata"]["name"] != "default"]
    path.write_text(json.dumps(parts))
    alone, _ = run(path)
    assert len(alone["errors"]) == 5
    assert all(r.startswith("unschedulable: NodePool bad: ") and words in r for r in alone["errors"].values())
