"""NodeOverlays: the API server and the validation refuse what upstream refuses, in the user's terms."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from shared.api import crds
from shared.api.decode import read_node_overlay
from shared.api.node_overlay import by_precedence
from tests.unit.instance_types.node_overlays import overlay

SCHEMA = next(c for c in crds.load() if c["spec"]["names"]["kind"] == "NodeOverlay")["spec"]["versions"][0]["schema"]
REQUIREMENT = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


def raw(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "o", "generation": 1},
        "spec": {"requirements": [], **spec},
    }


def invalid_paths(obj: dict[str, Any]) -> list[str]:
    errors = jsonschema.Draft4Validator(SCHEMA["openAPIV3Schema"]).iter_errors(obj)
    return sorted(".".join(str(step) for step in error.absolute_path) for error in errors)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"requirements": [REQUIREMENT], "priceAdjustment": "+5.00"},
        {"priceAdjustment": "-7.50"},
        {"priceAdjustment": "+.5"},
        {"priceAdjustment": "+115%"},
        {"priceAdjustment": "-15%"},
        {"priceAdjustment": "-99.9%"},
        {"priceAdjustment": "-100%"},
        {"price": "0"},
        {"price": "0.25", "weight": 10_000},
        {"capacity": {"smarter-devices/fuse": 1, "hugepages-2Mi": "100Mi", "nvidia.com/gpu": "4"}, "weight": 1},
        {"requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["team-a"]}], "price": "1"},
        {"requirements": [{"key": "karpenter.k8s.aws/ec2nodeclass", "operator": "In", "values": ["x"]}]},
        {"requirements": [{"key": "example.com/team", "operator": "Exists"}]},
        {"requirements": [{"key": "karpenter.k8s.aws/instance-cpu", "operator": "Gte", "values": ["8"]}]},
    ],
)
def test_these_overlays_are_admitted_and_valid(spec: dict[str, Any]) -> None:
    assert (invalid_paths(raw(**spec)), read_node_overlay(raw(**spec)).problems) == ([], ())


@pytest.mark.parametrize(
    ("spec", "path", "problem"),
    [
        ({"priceAdjustment": "10%"}, "spec.priceAdjustment", 'spec.priceAdjustment: "10%" is not allowed'),
        ({"priceAdjustment": "-101%"}, "spec.priceAdjustment", 'spec.priceAdjustment: "-101%" is not allowed'),
        ({"price": "-1"}, "spec.price", 'spec.price: "-1" is not allowed; allowed is an amount in USD per hour'),
        ({"price": 1}, "spec.price", "spec.price: 1 is not a string"),
        ({"weight": 0}, "spec.weight", "spec.weight: 0 is not allowed; allowed is 1 to 10000"),
        ({"weight": 10_001}, "spec.weight", "spec.weight: 10001 is not allowed; allowed is 1 to 10000"),
        (
            {"requirements": [{**REQUIREMENT, "operator": "Like"}]},
            "spec.requirements.0.operator",
            'spec.requirements[0].operator: "Like" is not allowed; allowed are In, NotIn',
        ),
        ({"capacity": {"a/x": "many"}}, "spec.capacity.a/x", 'spec.capacity.a/x: "many" is not a quantity'),
    ],
)
def test_the_definition_and_the_validation_name_the_same_field(spec: dict[str, Any], path: str, problem: str) -> None:
    assert invalid_paths(raw(**spec)) == [path]
    (shown,) = read_node_overlay(raw(**spec)).problems
    assert shown.startswith(problem)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"price": "1", "priceAdjustment": "+1"},
            "spec.price, spec.priceAdjustment: both are set; allowed is one of them",
        ),
        ({"capacity": {"cpu": "4"}}, "spec.capacity.cpu: is not allowed; allowed are extended resources only"),
        ({"capacity": {"pods": "4"}}, "spec.capacity.pods: is not allowed; allowed are extended resources only"),
        (
            {"capacity": {"example.com/x": "-1"}},
            'spec.capacity.example.com/x: "-1" is negative; allowed is 0 or more',
        ),
        (
            {"requirements": [{**REQUIREMENT, "values": []}]},
            "spec.requirements[0].values: is empty; In needs at least one value",
        ),
        (
            {"requirements": [{**REQUIREMENT, "values": ["cheap"]}]},
            'spec.requirements[0].values: ["cheap"] matches no node',
        ),
        (
            {"requirements": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
            'spec.requirements[0].key: "kubernetes.io/hostname" is restricted',
        ),
    ],
)
def test_what_the_schema_can_not_say_is_refused_with_the_field(spec: dict[str, Any], problem: str) -> None:
    (shown,) = read_node_overlay(raw(**spec)).problems
    assert shown.startswith(problem)


def test_the_higher_weight_comes_first_and_then_the_later_name() -> None:
    overlays = [overlay("a"), overlay("c", weight=1), overlay("b"), overlay("d", weight=1)]
    assert [o.name for o in by_precedence(overlays)] == ["d", "c", "b", "a"]
    assert overlays[0].weight == 0
