from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.api import crds
from shared.api.crds.definitions import DEFINITIONS, Definition
from shared.api.crds.files import text
from shared.api.decode import node_class, node_pool
from shared.api.meta import to_json, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
from shared.api.nodeclass import EC2NodeClass
from shared.api.nodepool import NodeClassRef, NodePool

FOLDER = Path(crds.__file__).parent
MANIFESTS = Path(__file__).parents[3] / "cli" / "demo" / "manifests"
SCENARIOS = Path(__file__).parents[2] / "scenarios" / "data"
BY_KIND = {crd["spec"]["names"]["kind"]: crd for crd in crds.load()}


def schema(kind: str) -> dict[str, Any]:
    openapi_schema: dict[str, Any] = BY_KIND[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return openapi_schema


def at(kind: str, path: str) -> dict[str, Any]:
    field_schema = schema(kind)
    for step in path.split("."):
        field_schema = field_schema["items"] if step == "[]" else field_schema["properties"][step]
    return field_schema


def invalid_paths(obj: dict[str, Any]) -> list[str]:
    errors = jsonschema.Draft4Validator(schema(obj["kind"])).iter_errors(obj)
    return sorted(".".join(str(step) for step in error.absolute_path) for error in errors)


def pool(**spec: object) -> dict[str, Any]:
    template = {"spec": {"nodeClassRef": {"name": "default"}}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"template": template, **spec},
    }


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.kind)
def test_the_kept_file_is_what_the_structs_say(definition: Definition) -> None:
    kept = (FOLDER / definition.file).read_text(encoding="utf-8")
    assert kept == text(definition), "run python -m shared.api.crds"


def test_there_is_a_file_for_every_kind_and_no_other() -> None:
    assert sorted(file.name for file in FOLDER.glob("*.yaml")) == sorted(d.file for d in DEFINITIONS)
    assert sorted(BY_KIND) == [
        "AWSNodeTemplate",
        "CapacityBuffer",
        "EC2NodeClass",
        "NodeClaim",
        "NodeOverlay",
        "NodePool",
        "Provisioner",
    ]


@pytest.mark.parametrize("crd", BY_KIND.values(), ids=BY_KIND.keys())
def test_a_definition_is_one_that_the_api_server_takes(crd: dict[str, Any]) -> None:
    spec = crd["spec"]
    assert crd["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert spec["names"]["categories"] == ["autoscaling" if spec["group"] == "autoscaling.x-k8s.io" else "karpenter"]
    assert [v["storage"] for v in spec["versions"]] == [True, *([False] * (len(spec["versions"]) - 1))]
    for version in spec["versions"]:
        assert version["served"]
        scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"}
        scaled = {"scale": scale} if spec["names"]["kind"] == "NodePool" else {}
        assert version["subresources"] == scaled | {"status": {}}
        jsonschema.Draft4Validator.check_schema(version["schema"]["openAPIV3Schema"])
        _assert_structural(version["schema"]["openAPIV3Schema"])


def test_capacity_buffers_are_served_as_both_upstream_versions_under_their_short_name() -> None:
    spec = BY_KIND["CapacityBuffer"]["spec"]
    assert [v["name"] for v in spec["versions"]] == ["v1beta1", "v1alpha1"]
    assert (spec["scope"], spec["names"]["shortNames"]) == ("Namespaced", ["cb"])
    assert at("CapacityBuffer", "spec.provisioningStrategy")["default"] == "buffer.x-k8s.io/active-capacity"


def _assert_structural(part: dict[str, Any]) -> None:
    """Structural schemas: a type everywhere but for int-or-string, no sibling additionalProperties, all described."""
    if part.get("x-kubernetes-int-or-string"):
        assert part["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        return
    assert part["type"] in {"object", "array", "string", "integer", "boolean"}
    assert not {"properties", "additionalProperties"} <= part.keys()
    if part["type"] == "array":
        _assert_structural(part["items"])
    for name, inner in part.get("properties", {}).items():
        assert name == "metadata" or inner.get("description"), name
        _assert_structural(inner)
    if "additionalProperties" in part:
        _assert_structural(part["additionalProperties"])


def test_what_users_leave_out_is_filled_in() -> None:
    disruption = at("NodePool", "spec.disruption")
    assert disruption["default"] == {
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    }
    assert at("NodePool", "spec.template.spec.expireAfter")["default"] == "720h"
    assert at("NodePool", "spec.disruption.budgets")["default"] == [{"nodes": "10%"}]
    assert at("EC2NodeClass", "spec.metadataOptions")["default"] == {
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    }
    assert "default" not in at("NodePool", "spec.weight")


def test_rules_between_fields_are_cel() -> None:
    rules = {
        kind: at(kind, path)["x-kubernetes-validations"][0]["rule"]
        for kind, path in (("NodeClaim", "spec"), ("EC2NodeClass", "spec"), ("NodePool", "spec.disruption.budgets"))
    }
    assert rules == {
        "NodeClaim": "self == oldSelf",
        "EC2NodeClass": "!(has(self.role) && has(self.instanceProfile))",
        "NodePool": "self.all(x, has(x.schedule) == has(x.duration))",
    }


def test_nothing_of_ours_that_is_no_field_of_v1_is_in_the_schema() -> None:
    assert "kubelet" not in at("NodePool", "spec.template.spec")["properties"]


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("NodePool", ["NodeClass", "Nodes", "Ready", "Age"]),
        ("NodeClaim", ["Type", "Capacity", "Zone", "Node", "Ready", "Age"]),
        ("EC2NodeClass", ["Ready", "Age"]),
        ("NodeOverlay", ["Ready", "Age"]),
        ("Provisioner", ["Template", "Nodes", "Ready", "Age"]),
        ("AWSNodeTemplate", ["Ready", "Age"]),
    ],
)
def test_kubectl_get_shows_what_karpenters_users_know(kind: str, columns: list[str]) -> None:
    printed = BY_KIND[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
    assert [column["name"] for column in printed if not column.get("priority")] == columns


@pytest.mark.parametrize("file", sorted(MANIFESTS.glob("*.yaml")), ids=lambda f: f.stem)
def test_every_manifest_is_admitted(file: Path) -> None:
    objects = [o for o in yaml.safe_load_all(file.read_text(encoding="utf-8")) if o["kind"] in BY_KIND]
    assert objects
    assert [invalid_paths(obj) for obj in objects] == [[]] * len(objects)


def test_every_pool_of_the_recorded_scenarios_is_admitted_and_valid() -> None:
    files = sorted(SCENARIOS.glob("*.json.gz"))
    assert files
    for file in files:
        for obj in json.loads(gzip.decompress(file.read_bytes()))["objects"]:
            if obj["kind"] == "NodePool":
                assert (invalid_paths(obj), node_pool(obj).problems) == ([], ()), file.name


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"weight": 0}, "spec.weight"),
        ({"weight": 101}, "spec.weight"),
        ({"limits": {"cpu": "ten"}}, "spec.limits.cpu"),
        ({"disruption": {"consolidationPolicy": "Sometimes"}}, "spec.disruption.consolidationPolicy"),
        ({"disruption": {"consolidateAfter": "soon"}}, "spec.disruption.consolidateAfter"),
        ({"disruption": {"budgets": [{"nodes": "110%"}]}}, "spec.disruption.budgets.0.nodes"),
        ({"disruption": {"budgets": [{"nodes": "1", "reasons": ["Old"]}]}}, "spec.disruption.budgets.0.reasons.0"),
        ({"template": {}}, "spec.template"),
        ({"template": {"spec": {"nodeClassRef": {}}}}, "spec.template.spec.nodeClassRef"),
    ],
)
def test_what_karpenter_refuses_is_refused(spec: dict[str, Any], path: str) -> None:
    assert invalid_paths(pool(**spec)) == [path]


@pytest.mark.parametrize(
    "requirement",
    [{"key": "a", "operator": "Like"}, {"key": "-", "operator": "In"}, {"key": "a", "operator": "In", "minValues": 99}],
)
def test_a_bad_requirement_is_rejected_in_v1_but_admitted_and_reported_in_a_legacy_provisioner(
    requirement: dict[str, Any],
) -> None:
    template = {"spec": {"nodeClassRef": {"name": "default"}, "requirements": [requirement]}}
    assert invalid_paths(pool(template=template))
    legacy = {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": "p"},
        "spec": {"requirements": [requirement], "providerRef": {"name": "default"}, "weight": 1000},
    }
    assert invalid_paths(legacy) == []
    assert node_pool(legacy).problems


def test_legacy_fields_that_are_not_modelled_stay() -> None:
    assert at("Provisioner", "spec")["x-kubernetes-preserve-unknown-fields"]
    assert at("Provisioner", "spec.kubeletConfiguration")["x-kubernetes-preserve-unknown-fields"]
    assert at("AWSNodeTemplate", "status")["x-kubernetes-preserve-unknown-fields"]


durations = st.integers(0, 10_000).map(lambda n: f"{n}h")
pools = st.builds(
    pool,
    weight=st.integers(1, 100),
    limits=st.dictionaries(st.sampled_from(["cpu", "memory", "nodes"]), st.integers(0, 10**9) | st.just("10Gi")),
    disruption=st.fixed_dictionaries(
        {"consolidateAfter": durations | st.just("Never")},
        optional={"budgets": st.lists(st.fixed_dictionaries({"nodes": st.integers(0, 100).map("{}%".format)}))},
    ),
)


@given(pools)
@settings(max_examples=50)
def test_what_the_schema_admits_the_struct_holds_and_writes_back(raw: dict[str, Any]) -> None:
    assert invalid_paths(raw) == []
    decoded = node_pool(raw)
    assert isinstance(decoded.value, NodePool)
    written = {**raw, **to_json(decoded.value)}
    assert node_pool(written).value == decoded.value


def test_what_karpenters_own_definitions_require_is_always_written() -> None:
    claim = NodeClaim(spec=NodeClaimSpec(node_class_ref=NodeClassRef(name="default")))
    assert to_json(claim)["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "default",
    }
    now = datetime(2026, 11, 21, tzinfo=UTC)
    (condition,) = to_json(with_condition([], "Ready", status=True, reason="Ready", now=now, generation=1))
    assert condition == {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-11-21T00:00:00Z",
        "observedGeneration": 1,
    }


def test_a_class_with_settings_that_tenon_passes_on_unread_is_admitted_and_keeps_them() -> None:
    raw = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "c"},
        "spec": {
            "amiSelectorTerms": [{"alias": "bottlerocket@v1.20.0"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"name": "nodes"}],
            "cpuOptions": {"coreCount": 2},
        },
    }
    assert invalid_paths(raw) == []
    decoded = node_class(raw)
    assert isinstance(decoded.value, EC2NodeClass)
    assert decoded.value.spec.cpu_options == {"coreCount": 2}
