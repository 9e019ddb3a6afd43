"""Custom kinds: what a CustomResourceDefinition asks the API to serve, and how its objects are completed and judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from local.kubernetes.errors import Cause
from local.kubernetes.kinds import Kind
from local.kubernetes.registry.cel_rules import compiles
from local.kubernetes.registry.structural_schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.kubernetes.objects import Obj


@dataclass(frozen=True)
class Definition:
    """One served version of a custom kind."""

    kind: Kind
    schema: Schema
    columns: tuple[Obj, ...] = ()
    selectable: tuple[str, ...] = ()
    """Fields beyond name and namespace that a field selector may name, like ``spec.zone``."""
    scale: Obj | None = None

    def complete(self, obj: Obj) -> None:
        """Prune what the schema does not know and fill in its defaults, in place."""
        self.schema.complete(obj)

    def faults(self, new: Obj, old: Obj | None) -> list[Cause]:
        """What is wrong with the object by the schema and its rules."""
        return self.schema.faults(new, old)


def definitions(crd: Obj) -> list[Definition]:
    """The versions that a CustomResourceDefinition serves."""
    spec = crd["spec"]
    names = spec["names"]
    found: list[Definition] = []
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
            counts_generations=True,
            custom=True,
        )
        raw = (version.get("schema") or {}).get("openAPIV3Schema") or {}
        found.append(
            Definition(
                kind,
                Schema(raw),
                columns=tuple(version.get("additionalPrinterColumns") or ()),
                selectable=tuple(f["jsonPath"].lstrip(".") for f in version.get("selectableFields") or ()),
                scale=subresources.get("scale"),
            )
        )
    return found


def default_definition(crd: Obj) -> None:
    """Complete a CustomResourceDefinition and accept it at once; changes it in place."""
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


def definition_faults(crd: Obj, _old: Obj | None) -> list[Cause]:
    """What a CustomResourceDefinition lacks."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    found = [
        Cause(f"spec.{at}", "FieldValueRequired", "Required value")
        for at, value in (
            ("group", spec.get("group")),
            ("names.plural", names.get("plural")),
            ("names.kind", names.get("kind")),
            ("versions", spec.get("versions")),
        )
        if not value
    ]
    if spec.get("scope") not in {"Cluster", "Namespaced"}:
        text = f'Unsupported value: "{spec.get("scope", "")}": supported values: "Cluster", "Namespaced"'
        found.append(Cause("spec.scope", "FieldValueNotSupported", text))
    expected = f"{names.get('plural')}.{spec.get('group')}"
    if not found and crd["metadata"]["name"] != expected:
        text = f'Invalid value: "{crd["metadata"]["name"]}": must be spec.names.plural+"."+spec.group'
        found.append(Cause("metadata.name", "FieldValueInvalid", text))
    if not found and sum(bool(version.get("storage")) for version in spec["versions"]) != 1:
        text = "Invalid value: must have exactly one version marked as storage version"
        found.append(Cause("spec.versions", "FieldValueInvalid", text))
    found.extend(
        Cause(
            f"spec.versions[{index}].schema.openAPIV3Schema",
            "FieldValueRequired",
            "Required value: schemas are required",
        )
        for index, version in enumerate(spec.get("versions") or [])
        if not ((version.get("schema") or {}).get("openAPIV3Schema"))
    )
    for index, version in enumerate(spec.get("versions") or []):
        at = f"spec.versions[{index}].schema.openAPIV3Schema"
        found.extend(_rule_faults((version.get("schema") or {}).get("openAPIV3Schema") or {}, at))
    return found


def _rule_faults(schema: Obj, at: str) -> Iterator[Cause]:
    """CEL rules that don't compile."""
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or []):
        if not compiles(rule.get("rule", "")):
            here = f"{at}.x-kubernetes-validations[{index}].rule"
            yield Cause(here, "FieldValueInvalid", f'Invalid value: "{rule.get("rule", "")}": compilation failed')
    for name, part in (schema.get("properties") or {}).items():
        yield from _rule_faults(part, f"{at}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _rule_faults(schema[name], f"{at}.{name}")
