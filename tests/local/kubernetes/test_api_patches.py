"""What each kind of patch makes of an object."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local.kubernetes.errors import ApiError
from local.kubernetes.registry import patches

_names = st.text(alphabet="ab/~.é", max_size=2)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3),
    max_leaves=8,
)
_objects = st.dictionaries(_names, _json, max_size=4)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"a": "foo"}, {"b": {"c": {"d": None}}}, {"a": "foo", "b": {"c": {}}}),
        (["a"], {"a": 1}, {"a": 1}),
    ],
)
def test_a_merge_patch_matches_the_examples_of_rfc_7386(target: object, patch: object, result: object) -> None:
    assert patches.merge(target, patch) == result


@given(_objects, _objects)
def test_merging_twice_is_merging_once_and_changes_no_input(target: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((target, patch))
    once = patches.merge(target, patch)
    assert patches.merge(once, patch) == once
    assert (target, patch) == before


@given(_objects, _objects)
def test_a_strategic_patch_without_known_lists_is_a_merge_patch(target: dict[str, Any], patch: dict[str, Any]) -> None:
    assert patches.strategic(target, patch) == patches.merge(target, patch)


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": {"b/c": 1}}, [{"op": "remove", "path": "/a/b~1c"}], {"a": {}}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}], {}),
    ],
)
def test_a_json_patch_carries_out_its_operations_in_order(target: object, operations: object, result: object) -> None:
    assert patches.json_patch(target, operations) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/missing"},
        {"op": "replace", "path": "/missing/deep", "value": 1},
        {"op": "add", "path": "/missing/deep", "value": 1},
        {"op": "remove", "path": "/list/7"},
    ],
)
def test_a_json_patch_that_cannot_be_carried_out_is_unprocessable(operation: dict[str, Any]) -> None:
    target = {"a": 1, "list": [1]}
    with pytest.raises(ApiError) as refused:
        patches.json_patch(target, [operation])
    assert refused.value.status == 422
    assert target == {"a": 1, "list": [1]}


def test_a_strategic_patch_changes_one_container_by_its_name_and_keeps_the_others() -> None:
    pod = {"spec": {"containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}}
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}}
    assert patches.strategic(pod, patch)["spec"]["containers"] == [
        {"name": "a", "image": "a:1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
        {"name": "b"},
    ]


def test_a_strategic_patch_deletes_replaces_and_orders_by_its_directives() -> None:
    pod = {"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}], "nodeSelector": {"x": "1"}}}
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "b", "$patch": "delete"}],
            "nodeSelector": {"$patch": "replace", "y": "2"},
        }
    }
    assert patches.strategic(pod, patch) == {
        "spec": {"containers": [{"name": "c"}, {"name": "a"}], "nodeSelector": {"y": "2"}}
    }


def test_a_strategic_patch_replaces_taints_and_tolerations() -> None:
    node = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    patch = {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}
    assert patches.strategic(node, patch) == patch


def test_a_strategic_patch_sets_one_condition_and_adds_and_removes_finalizers() -> None:
    obj = {
        "metadata": {"finalizers": ["a", "b"]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "True"}]},
    }
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    assert patches.strategic(obj, patch) == {
        "metadata": {"finalizers": ["c", "b"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]},
    }
