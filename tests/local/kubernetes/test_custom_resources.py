"""What a CustomResourceDefinition makes the API do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from local.kubernetes.registry.store import Store

_REQUIREMENT = {
    "type": "object",
    "required": ["key", "operator"],
    "properties": {
        "key": {"type": "string", "maxLength": 10, "pattern": "^[a-z/.]+$"},
        "operator": {"type": "string", "enum": ["In", "Exists"]},
        "values": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "x-kubernetes-validations": [
        {
            "rule": "self.operator == 'In' ? has(self.values) && self.values.size() > 0 : true",
            "message": "In has values",
        }
    ],
}
_SPEC = {
    "type": "object",
    "properties": {
        "weight": {"type": "integer", "minimum": 1, "maximum": 100},
        "size": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "mode": {"type": "string", "default": "auto"},
        "limits": {"type": "object", "additionalProperties": {"type": "string"}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "note": {"type": "string", "nullable": True},
        "since": {"type": "string", "format": "date-time"},
        "requirements": {"type": "array", "items": _REQUIREMENT},
        "zones": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
        "role": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}]},
    },
}


def definition(**version: object) -> dict[str, Any]:
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": _SPEC, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    first = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
        **version,
    }
    names = {"plural": "widgets", "kind": "Widget"}
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Cluster", "names": names, "versions": [first]},
    }


@pytest.fixture
def widgets(store: Store) -> Kind:
    store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition())
    return store.kind("example.com/v1", "Widget")


def widget(**spec: object) -> dict[str, Any]:
    return {"metadata": {"name": "w"}, "spec": spec}


def refused(store: Store, kind: Kind, spec: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as error:
        store.create(kind, widget(**spec))
    assert (error.value.status, error.value.reason) == (422, "Invalid")
    return error.value.message.removeprefix('Widget.example.com "w" is invalid: ')


_UNCHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the "
    "existing errors to complete validation"
)
"""What a real server adds to an error with which it doesn't evaluate the CEL rules."""


def without_rules(message: str) -> str:
    """The message with the hint that the CEL rules weren't checked."""
    return f"[{message}, {_UNCHECKED}]"


def test_a_definition_is_established_at_once_and_deleted_with_its_objects(store: Store, widgets: Kind) -> None:
    store.create(widgets, widget(weight=1))
    crd = store.get(kinds.CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
    assert [(c["type"], c["status"]) for c in crd["status"]["conditions"]] == [
        ("NamesAccepted", "True"),
        ("Established", "True"),
    ]
    store.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com")
    with pytest.raises(ApiError) as error:
        store.list(widgets)
    assert error.value.status == 404


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"weight": 101}, "spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100"),
        ({"weight": 0}, "spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1"),
        (
            {"weight": "9"},
            without_rules(
                'spec.weight: Invalid value: "string": spec.weight in body must be of type integer: "string"'
            ),
        ),
        (
            {"requirements": [{"key": "a", "operator": "Near"}]},
            without_rules('spec.requirements[0].operator: Unsupported value: "Near": supported values: "In", "Exists"'),
        ),
        ({"requirements": [{"operator": "Exists"}]}, without_rules("spec.requirements[0].key: Required value")),
        (
            {"requirements": [{"key": "A", "operator": "Exists"}]},
            (
                'spec.requirements[0].key: Invalid value: "A": spec.requirements[0].key in body should match '
                "'^[a-z/.]+$'"
            ),
        ),
        (
            {"requirements": [{"key": "a" * 11, "operator": "Exists"}]},
            without_rules("spec.requirements[0].key: Too long: may not be more than 10 bytes"),
        ),
        (
            {"requirements": [{"key": "a", "operator": "In", "values": ["x", "y", "z"]}]},
            without_rules("spec.requirements[0].values: Too many: 3: must have at most 2 items"),
        ),
        (
            {"requirements": [{"key": "a", "operator": "In"}]},
            "spec.requirements[0]: Invalid value: In has values",
        ),
        (
            {"since": "yesterday"},
            (
                '[spec.since: Invalid value: "yesterday": spec.since in body must be of type date-time: "yesterday", '
                f"{_UNCHECKED}]"
            ),
        ),
        ({"zones": [{"name": "a"}, {"name": "a"}]}, 'spec.zones[1]: Duplicate value: {"name":"a"}'),
    ],
)
def test_a_validation_error_has_the_field_the_value_and_the_allowed_values(
    store: Store, widgets: Kind, spec: dict[str, Any], message: str
) -> None:
    assert refused(store, widgets, spec) == message


def test_unknown_fields_and_nulls_are_dropped_defaults_filled_in_and_open_objects_kept(
    store: Store, widgets: Kind
) -> None:
    created = store.create(
        widgets,
        widget(stray=1, open={"any": [1]}, limits={"cpu": "1", "memory": None}, note=None, size="5%") | {"other": 1},
    )
    assert created["spec"] == {
        "open": {"any": [1]},
        "limits": {"cpu": "1"},
        "note": None,
        "size": "5%",
        "mode": "auto",
    }
    assert "other" not in created


def test_a_transition_rule_applies_to_updates_only(store: Store, widgets: Kind) -> None:
    store.create(widgets, widget(role="a"))
    store.patch(widgets, "w", {"spec": {"weight": 2}})
    with pytest.raises(ApiError, match=r'spec\.role: Invalid value: "b": is fixed'):
        store.patch(widgets, "w", {"spec": {"role": "b"}})


def test_errors_in_unchanged_values_are_ignored_after_the_schema_was_tightened(store: Store, widgets: Kind) -> None:
    store.create(widgets, widget(weight=50))
    tighter = {"spec": {"versions": definition()["spec"]["versions"]}}
    tighter["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "properties": {"spec": {**_SPEC, "properties": {**_SPEC["properties"], "weight": {"maximum": 10}}}},  # type: ignore[dict-item]  # a dict by construction
    }
    store.patch(kinds.CUSTOM_RESOURCE_DEFINITIONS, "widgets.example.com", tighter)
    store.patch(widgets, "w", {"spec": {"mode": "off"}})
    with pytest.raises(ApiError):
        store.patch(widgets, "w", {"spec": {"weight": 51}})


def test_status_is_not_written_by_the_main_resource_and_changes_no_generation(store: Store, widgets: Kind) -> None:
    assert "status" not in store.create(widgets, {**widget(weight=1), "status": {"ready": True}})
    both = {"status": {"ready": True}, "spec": {"weight": 9}, "metadata": {"labels": {"a": "b"}}}
    after = store.patch(widgets, "w", both, subresource="status")
    assert (after["status"], after["spec"]["weight"], after["metadata"]["generation"]) == ({"ready": True}, 1, 1)
    assert "labels" not in after["metadata"]


def test_an_update_needs_the_version_it_is_based_on(store: Store, widgets: Kind) -> None:
    store.create(widgets, widget(weight=1))
    with pytest.raises(ApiError, match=r"metadata\.resourceVersion: Invalid value: 0: must be specified"):
        store.replace(widgets, widget(weight=2))


def test_custom_kinds_do_not_support_strategic_merge_patches(store: Store, widgets: Kind) -> None:
    store.create(widgets, widget(weight=1))
    with pytest.raises(ApiError) as error:
        store.patch(widgets, "w", {"spec": {"weight": 2}}, patch_type="strategic")
    assert error.value.status == 415


def test_two_versions_have_the_same_objects(store: Store) -> None:
    crd = definition()
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v1beta1", "storage": False})
    store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, crd)
    old, new = store.kind("example.com/v1beta1", "Widget"), store.kind("example.com/v1", "Widget")
    store.create(old, widget(weight=3))
    assert store.get(new, "w")["apiVersion"] == "example.com/v1"
    assert [obj["apiVersion"] for obj in store.list(old)] == ["example.com/v1beta1"]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ({"schema": {}}, "schemas are required"),
        ({"storage": False}, "must have exactly one version marked as storage version"),
        (
            {"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]}}},
            "compilation failed",
        ),
    ],
)
def test_an_invalid_definition_is_refused(store: Store, version: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError, match=message):
        store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition(**version))
