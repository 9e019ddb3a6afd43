"""Turns a published OpenAPI definition, or the schema of a CustomResourceDefinition, into the paths of its fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docs.fields.schemas import Field

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Schema = Mapping[str, Any]

_CORE, _META = "io.k8s.api.core.v1", "io.k8s.apimachinery.pkg.apis.meta.v1"
_KINDS = {
    "io.k8s.api.apps.v1": ("DaemonSet",),
    _CORE: ("Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "PodTemplate", "Service"),
    "io.k8s.api.policy.v1": ("PodDisruptionBudget",),
    "io.k8s.api.storage.v1": ("CSIDriver", "CSINode", "StorageClass"),
}
_SHARED = {
    _CORE: (
        "Container", "ContainerStatus", "NodeSelectorTerm", "PersistentVolumeClaimSpec", "PodAffinityTerm", "PodSpec",
        "PodTemplateSpec",
    ),
    _META: ("LabelSelector", "ObjectMeta"),
}  # fmt: skip
"""Types that are listed once, because several kinds have them or a kind has them several times."""


def of_kubernetes(definitions: Schema) -> Iterator[Field]:
    """The fields of the kinds that matter, from the definitions of Kubernetes' OpenAPI document."""
    shared = {f"{group}.{name}": name for group, names in _SHARED.items() for name in names}
    roots = {**{f"{group}.{kind}": kind for group, kinds in _KINDS.items() for kind in kinds}, **shared}
    for definition, kind in roots.items():
        for path, type_ in _Walk(definitions, shared).properties(definitions[definition], ""):
            yield Field(kind, path, type_)


def of_definition(definition: Schema) -> Iterator[Field]:
    """The fields of a CustomResourceDefinition's stored version; ``*`` ends the path of one that keeps any field."""
    (version,) = (v for v in definition["spec"]["versions"] if v["storage"])
    for path, _ in _Walk({}, {}).properties(version["schema"]["openAPIV3Schema"], ""):
        yield Field(definition["spec"]["names"]["kind"], path)


class _Walk:
    def __init__(self, definitions: Schema, shared: Mapping[str, str]) -> None:
        self._definitions = definitions
        self._shared = shared

    def properties(self, schema: Schema, parent: str) -> Iterator[tuple[str, str]]:
        for name, inner in sorted(schema.get("properties", {}).items()):
            yield from self._field(inner, f"{parent}.{name}" if parent else name)

    def _field(self, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            if name in self._shared:
                yield path, self._shared[name]
            else:
                yield from self._field(self._definitions[name], path)
        elif schema.get("type") == "array":
            yield from self._field(schema["items"], f"{path}[]")
        elif schema.get("properties"):
            yield from self.properties(schema, path)
        elif isinstance(schema.get("additionalProperties"), dict):
            yield from self._field(schema["additionalProperties"], f"{path}{{}}")
        else:
            yield path + ("*" if schema.get("x-kubernetes-preserve-unknown-fields") else ""), ""
