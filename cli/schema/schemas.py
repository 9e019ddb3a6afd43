"""The JSON schema of each command's ``--json``, generated from the types that it prints.

msgspec makes the schema. It is made for readers, so it says more than a decoder needs: a field that is always printed
is required, whether or not the type has a default for it.
"""

from __future__ import annotations

import inspect
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from cli.json_output import VERSION_FIELD, VERSIONS, WITHOUT_VERSION
from infra import installation

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TYPES: dict[str, tuple[str, ...]] = {
    "catalog": ("cli.catalog.entries:CatalogEntry",),
    "demo": ("cli.demo.results:DemoResult",),
    "explain": ("cli.explain.json_explanation:ExplanationOutput",),
    "migrate cluster-autoscaler": (
        "cli.migrate.json_migration:Migration",
        "cli.migrate.json_migration:UndoneMigration",
    ),
    "migrate karpenter": ("cli.migrate.json_migration:KarpenterMigration",),
    "node-groups": ("cli.node_groups.entries:NodeGroupEntry",),
    "nodes": ("cli.nodes.json_nodes:Nodes",),
    "pause": ("cli.pause.outcome:PauseOutcome",),
    "plan": ("cli.plan.json_plan:PlanOutput",),
    "preflight": ("cli.preflight.finding:Finding",),
    "report": ("cli.report.json_report:ReportOutput",),
    "resume": ("cli.pause.outcome:ResumeOutcome",),
    "rollback": ("cli.rollback.readiness:RollbackReadiness",),
    "shadow report": ("cli.shadow.json_report:ShadowReport",),
    "simulate": ("cli.simulate.json_decision:SchedulingDecision",),
    "status": ("cli.status.deployment:StatusOutput",),
    "upgrade-check": ("cli.upgrade.comparison:UpgradeCheck",),
    "verify": ("cli.verify.output:VerificationPlan", "cli.verify.output:VerificationReport"),
}
"""By command, the types of its output; several where options choose. They are imported when they are needed."""
LISTS = frozenset({"catalog", "node-groups", "preflight"})
"""Commands that print a list of these values, which has no place for a version."""


def schema(command: str) -> dict[str, Any]:
    """The JSON schema of what a command prints with ``--json``. ``$id`` has its version."""
    roots = [_load(path) for path in _TYPES[command]]
    references, definitions = msgspec.json.schema_components(roots, ref_template="#/$defs/{name}")
    for class_ in set(_classes(roots)):
        definition = definitions[class_.__name__]
        _complete(definition, class_)
        definition["description"] = inspect.cleandoc(definition["description"])
    version = VERSIONS[command]
    document: dict[str, Any] = {
        "$schema": _DIALECT,
        "$id": f"https://tenon.sh/schemas/{command.replace(' ', '-')}/v{version}.json",
        "title": f"tenon {command} --json",
    }
    if command in LISTS:
        (reference,) = references
        return {**document, "type": "array", "items": reference, "$defs": definitions}
    for root in roots if command not in WITHOUT_VERSION else ():
        definition = definitions[root.__name__]
        field = {"const": version, "description": "The version of this schema."}
        definition["properties"] = {VERSION_FIELD: field, **definition["properties"]}
        definition["required"] = [VERSION_FIELD, *definition["required"]]
    shape = references[0] if len(references) == 1 else {"anyOf": list(references)}
    return {**document, **shape, "$defs": definitions}


def _load(path: str) -> type[Any]:
    module, _, name = path.partition(":")
    class_: type[Any] = getattr(installation.own_module(module), name)
    return class_


def _complete(definition: dict[str, Any], class_: type[Any]) -> None:
    """Mark the fields that are always printed as required."""
    optional = {name for name, hint in _fields(class_) if msgspec.UnsetType in typing.get_args(hint)}
    definition["required"] = [name for name in definition["properties"] if name not in optional]
    for field in definition["properties"].values():
        field.pop("default", None)


def _fields(class_: type[Any]) -> Iterator[tuple[str, Any]]:
    """The fields with their types, named as in JSON."""
    hints = typing.get_type_hints(class_)
    for field in msgspec.structs.fields(class_):
        yield field.encode_name, hints[field.name]


def _classes(types: typing.Iterable[Any]) -> Iterator[Any]:
    """All Structs among these types and in their fields."""
    for type_ in types:
        if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
            yield type_
            yield from _classes(hint for _, hint in _fields(type_))
        else:
            yield from _classes(typing.get_args(type_))
