"""Custom resources: the kinds that CustomResourceDefinitions define, and the defaults and validation of definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local.kubernetes.errors import Cause
from local.kubernetes.kinds import Kind
from local.kubernetes.registry.cel_rules import compiles
from local.kubernetes.registry.structural_schema import Schema
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj


class Definition(Struct):
    """One served version of a custom kind."""

    kind: Kind
    schema: Schema
    columns: tuple[Obj, ...] = ()
    selectable: tuple[str, ...] = ()
    """Fields beyond name and namespace that a field selector may name, like ``spec.zone``."""
    scale: Obj | None = None

    def prune_and_default(self, obj: Obj) -> None:
        """Remove unknown fields and fill in defaults, in place."""
        self.schema.prune_and_default(obj)

    def validate(self, new: Obj, old: Obj | None, *, is_blocked: bool = False) -> list[Cause]:
        """The violations of the schema and its rules; ``is_blocked``: errors of the metadata keep rules unchecked."""
        return self.schema.validate(new, old, is_blocked=is_blocked)


def definitions(crd: Obj) -> list[Definition]:
    """The versions that a CustomResourceDefinition serves."""
    spec = crd["spec"]
    names = spec["names"]
    served: list[Definition] = []
    for version in spec["versions"]:
        if not version.get("served", True):
            continue
        subresources = version.get("subresources") or {}
        kind = Kind(
            spec["group"],
            version["name"],
            names["plural"],
            names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            singular=names.get("singular") or names["kind"].lower(),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in subresources),
            tracks_generation=True,
            custom=True,
        )
        raw = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        served.append(
            Definition(
                kind,
                Schema(raw),
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                selectable=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
                scale=subresources.get("scale"),
            )
        )
    return served


def default_definition(crd: Obj) -> None:
    """Fill in the defaults of a CustomResourceDefinition and set it Established, in place."""
    spec = crd.setdefault("spec", {})
    names = dict(spec.get("names") or {})
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    since = crd["metadata"]["creationTimestamp"]
    crd["status"] = {
        "acceptedNames": names,
        "conditions": [
            {
                "type": "NamesAccepted",
                "status": "True",
                "reason": "NoConflicts",
                "message": "no conflicts found",
                "lastTransitionTime": since,
            },
            {
                "type": "Established",
                "status": "True",
                "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted",
                "lastTransitionTime": since,
            },
        ],
        "storedVersions": [v.get("name") for v in spec.get("versions") or [] if v.get("storage")],
    }


def validate_definition(crd: Obj, _old: Obj | None) -> list[Cause]:
    """The errors of a CustomResourceDefinition."""
    spec = crd.get("spec") or {}
    causes = _missing_fields(spec)
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        text = f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"'
        causes.append(Cause("spec.scope", "FieldValueNotSupported", text))
    if not causes:
        causes += _naming_and_storage(crd)
    for index, version in enumerate(spec.get("versions") or []):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            path, text = f"spec.versions[{index}].schema.openAPIV3Schema", "Required value: schemas are required"
            causes.append(Cause(path, "FieldValueRequired", text))
    for index, version in enumerate(spec.get("versions") or []):
        schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        causes += _validate_rules(schema, f"spec.versions[{index}].schema.openAPIV3Schema")
    return causes


def _missing_fields(spec: Obj) -> list[Cause]:
    names = spec.get("names") or {}
    required = (
        ("group", spec.get("group")),
        ("names.plural", names.get("plural")),
        ("names.kind", names.get("kind")),
        ("versions", spec.get("versions")),
    )
    return [Cause(f"spec.{path}", "FieldValueRequired", "Required value") for path, value in required if not value]


def _naming_and_storage(crd: Obj) -> list[Cause]:
    """The errors of the name, else of the storage version."""
    spec = crd["spec"]
    if crd["metadata"]["name"] != f"{spec['names']['plural']}.{spec['group']}":
        text = f'Invalid value: "{crd["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        return [Cause("metadata.name", "FieldValueInvalid", text)]
    if sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
        text = "Invalid value: must have exactly one version marked as storage version"
        return [Cause("spec.versions", "FieldValueInvalid", text)]
    return []


def _validate_rules(schema: Obj, path: str) -> Iterator[Cause]:
    """The CEL rules that don't compile."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        if not compiles(rule.get("rule", "")):
            rule_path = f"{path}.x-kubernetes-validations[{index}].rule"
            yield Cause(rule_path, "FieldValueInvalid", f'Invalid value: "{rule.get("rule", "")}": compilation failed')
    for name, part in (schema.get("properties") or {}).items():
        yield from _validate_rules(part, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _validate_rules(schema[name], f"{path}.{name}")
