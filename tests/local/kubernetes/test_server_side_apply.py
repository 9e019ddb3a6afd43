"""Field ownership after server-side apply, and conflicts between managers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from local.kubernetes.registry.store import Store


def applied(store: Store, config: dict[str, Any], manager: str, *, force: bool = False) -> dict[str, Any]:
    return store.patch(kinds.NODES, "n", config, patch_type="apply", field_manager=manager, force=force)


def test_apply_creates_a_missing_object(store: Store) -> None:
    node = applied(store, {"metadata": {"labels": {"a": "1"}}}, "me")
    assert node["metadata"]["labels"] == {"a": "1"}
    (entry,) = node["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"]) == ("me", "Apply")
    assert entry["fieldsV1"] == {"f:metadata": {"f:labels": {"f:a": {}}}}


def test_applying_the_same_configuration_again_changes_nothing(store: Store) -> None:
    first = applied(store, {"metadata": {"labels": {"a": "1"}}}, "me")
    assert applied(store, {"metadata": {"labels": {"a": "1"}}}, "me") == first


def test_fields_no_longer_applied_are_removed_and_other_fields_stay(store: Store) -> None:
    applied(store, {"metadata": {"labels": {"a": "1", "b": "1"}}}, "me")
    store.patch(kinds.NODES, "n", {"metadata": {"labels": {"c": "1"}}})
    node = applied(store, {"metadata": {"labels": {"a": "2"}}}, "me")
    assert node["metadata"]["labels"] == {"a": "2", "c": "1"}


def test_two_appliers_may_own_the_same_value(store: Store) -> None:
    applied(store, {"metadata": {"labels": {"a": "1"}}}, "me")
    applied(store, {"metadata": {"labels": {"a": "1"}}}, "you")
    node = applied(store, {"metadata": {"labels": {}}}, "me")
    assert node["metadata"]["labels"] == {"a": "1"}


def test_another_appliers_field_is_a_conflict_unless_it_is_forced(store: Store) -> None:
    applied(store, {"metadata": {"labels": {"a": "1"}}}, "me")
    with pytest.raises(ApiError, match=r'conflict with "me": \.metadata\.labels\.a') as refused:
        applied(store, {"metadata": {"labels": {"a": "2"}}}, "you")
    assert refused.value.status == 409
    node = applied(store, {"metadata": {"labels": {"a": "2"}}}, "you", force=True)
    assert node["metadata"]["labels"] == {"a": "2"}
    assert [entry["manager"] for entry in node["metadata"]["managedFields"]] == ["you"]


def test_lists_with_keys_are_merged_and_others_replaced(store: Store) -> None:
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    disk = {"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}}
    applied(store, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, "me", force=True)
    for config, manager in ((ready, "kubelet"), (disk, "detector")):
        store.patch(kinds.NODES, "n", config, patch_type="apply", field_manager=manager, subresource="status")
    node = store.get(kinds.NODES, "n")
    assert [condition["type"] for condition in node["status"]["conditions"]] == ["Ready", "DiskPressure"]
    node = store.patch(
        kinds.NODES, "n", {"status": {}}, patch_type="apply", field_manager="kubelet", subresource="status"
    )
    assert [condition["type"] for condition in node["status"]["conditions"]] == ["DiskPressure"]
    node = applied(store, {"spec": {"taints": [{"key": "b", "effect": "NoSchedule"}]}}, "me")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["b"]
