from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.decode import DecodeError, decode, node_claim, node_class, node_pool
from shared.api.kubernetes import Pod
from shared.api.nodepool import NodePool

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


def raw_pool(**spec: object) -> dict[str, Any]:
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "p"}, "spec": spec}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"weight": "ten"}, 'spec.weight: "ten" is not an integer'),
        ({"limits": {"cpu": True}}, "spec.limits.cpu: true is not a number or a string"),
        ({"limits": ["cpu"]}, 'spec.limits: ["cpu"] is not a map'),
        (
            {"template": {"metadata": {"labels": {"a": "b", "team": 1}}}},
            "spec.template.metadata.labels.team: 1 is not a string; put it in quotes",
        ),
        (
            {"template": {"spec": {"requirements": [{"key": "a", "operator": "In", "values": ["1", 2]}]}}},
            "spec.template.spec.requirements[0].values[1]: 2 is not a string; put it in quotes",
        ),
        (
            {"template": {"spec": {"requirements": [{"key": "a"}]}}},
            "spec.template.spec.requirements[0].operator: is missing",
        ),
    ],
)
def test_a_field_of_the_wrong_type_is_reported_with_path_value_and_allowed_type(
    spec: dict[str, Any], problem: str
) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(raw_pool(**spec), NodePool)
    assert caught.value.problem == problem
    assert node_pool(msgspec.json.encode(raw_pool(**spec))).problems == (problem,)


def test_an_invalid_time_is_reported_with_an_example() -> None:
    with pytest.raises(DecodeError, match=r'metadata\.creationTimestamp: "now" is not a time such as 2026'):
        decode(b'{"metadata": {"creationTimestamp": "now"}}', Pod)


def test_null_counts_as_absent() -> None:
    raw = raw_pool(template={"spec": {"taints": None, "requirements": [], "expireAfter": None}}, limits=None)
    decoded_pool = decode(raw, NodePool)
    assert decoded_pool.spec.template.spec.taints == []
    assert decoded_pool.spec.template.spec.expire_after == "720h"


@pytest.mark.parametrize("text", [b"", b'{"a"', b"\xff\xfe", "not json"])
def test_invalid_json_is_rejected(text: bytes | str) -> None:
    with pytest.raises(DecodeError, match="the object is not JSON"):
        decode(text, Pod)
    assert node_pool(text).value is None


def test_fields_that_are_not_ours_are_passed_over() -> None:
    assert (
        decode(b'{"metadata": {"name": "a", "managedFields": [1]}, "spec": {"future": {}}}', Pod).metadata.name == "a"
    )


def test_another_kind_is_reported_with_the_allowed_kinds() -> None:
    decoded = node_pool({"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "old"}})
    assert decoded.ref.name == "old"
    assert "allowed is karpenter.sh/v1 NodePool or karpenter.sh/v1alpha5 Provisioner" in decoded.problems[0]


def test_a_bad_object_is_still_named() -> None:
    decoded = node_pool({**raw_pool(weight="x"), "metadata": {"name": "p", "uid": "u-1"}})
    assert (decoded.ref.kind, decoded.ref.name, decoded.ref.uid) == ("NodePool", "p", "u-1")


@given(json_values)
def test_any_json_is_an_object_or_a_problem(value: object) -> None:
    for spec in (value, {"template": value}, {"template": {"spec": value}}, {"disruption": value}):
        for read in (node_pool, node_class, node_claim):
            for api_version, kind in (
                ("karpenter.sh/v1", "NodePool"),
                ("karpenter.sh/v1alpha5", "Provisioner"),
                ("karpenter.k8s.aws/v1", "EC2NodeClass"),
                ("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"),
                ("karpenter.sh/v1", "NodeClaim"),
            ):
                raw = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec}
                decoded = read(msgspec.json.encode(raw))
                assert (decoded.value is None) == bool(decoded.problems)


def test_importing_it_brings_in_neither_aws_nor_kubernetes_nor_yaml() -> None:
    code = "import sys, shared.api.decode; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"boto3", "botocore", "kubernetes", "yaml", "numpy", "jsonschema"} & set(loaded)
