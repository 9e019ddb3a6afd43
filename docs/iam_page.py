"""The page of IAM permissions: all statements of each function's role, from the synthesised template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.descriptions import PURPOSES
from docs.markdown import complete, table
from infra import assembly, function_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from shared.api.json_types import Json

ROOT = Path(__file__).resolve().parent.parent
_CLUSTER = "NAME"
_OPTIONS = {
    "nodeGroups": "on",
    "bufferQueues": "QUEUE",
    "bufferAlarms": "ALARM",
    "bufferEvents": "SOURCE/DETAIL-TYPE",
    "commitments": "on",
    "zonalShift": "on",
}
"""Without these, the functions buffers and nodegroups aren't deployed, and catalog and lifecycle have fewer rights."""
_INSTEAD = {function_sizes.SHADOW: {"mode": "shadow"}, function_sizes.WEBHOOK: {"relay": "webhook"}}
"""Functions that take the place of others."""
_FLEET = {"fleet": "FLEET", "clusters": _CLUSTER}
_SHORT = {"AWS::Region": "REGION", "AWS::AccountId": "ACCOUNT", "AWS::Partition": "aws"}


def page() -> str:
    """The statements of each function with their purposes."""
    by_function = _statements(_template(_OPTIONS))
    for function, option in _INSTEAD.items():
        by_function[function] = _statements(_template(option))[function]
    member = _statements(_template(_FLEET, "tenon-NAME"))[function_sizes.LIFECYCLE]
    by_function[function_sizes.LIFECYCLE] += [s for s in member if _name(s) == "RecordSweeps"]
    by_function["catalog of a fleet"] = _statements(_template(_FLEET, "tenon--fleet-FLEET"))[function_sizes.CATALOG]
    lines = [
        "# Permissions",
        "",
        (
            "Each function has its own role. These are all statements, from the template of `cdk deploy`; tests run "
            "the functions with exactly these policies. The function `shadow` is only deployed by `-c mode=shadow`, "
            "`webhook` by `-c relay=webhook`. "
            "In a fleet the lifecycle function has the statement `RecordSweeps`, and the catalog function is the "
            "fleet's. "
            "Names of the stack's own resources are shortened. The "
            "functions' permissions in the cluster are in the ClusterRoles that `tenon manifests` prints."
        ),
        "",
    ]
    names: set[str] = set()
    for name, statements in by_function.items():
        names |= {_name(s) for s in statements}
        rows = [
            (
                _name(s),
                "<br>".join(f"`{a}`" for a in _as_list(s["Action"])),
                "<br>".join(f"`{_short(r)}`" for r in _as_list(s["Resource"])),
                "<br>".join(_conditions(s.get("Condition", {}))),
                PURPOSES.get(_name(s), ""),
            )
            for s in statements
        ]
        lines += [f"## {name}", "", *table(("statement", "actions", "resources", "conditions", "purpose"), rows), ""]
    complete("statement", names, set(PURPOSES))
    return "\n".join(lines)


def _template(options: Mapping[str, str], stack: str = f"tenon-{_CLUSTER}") -> dict[str, Any]:
    cluster = "" if "clusters" in options else _CLUSTER
    folder = assembly.cached(cluster=cluster, root=ROOT, context={"bundle": "source", **options})
    template: dict[str, Any] = json.loads((folder / f"{stack}.template.json").read_text(encoding="utf-8"))
    return template


def _name(statement: Mapping[str, Any]) -> str:
    """The statement's Sid; the CDK's own grants have none and are named by their first action."""
    return str(statement.get("Sid") or _as_list(statement["Action"])[0])


def _statements(template: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    by_function: dict[str, list[dict[str, Any]]] = {name: [] for name in function_sizes.OF_ANY_MODE}
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::IAM::Policy":
            continue
        for role in resource["Properties"]["Roles"]:
            for name in function_sizes.OF_ANY_MODE:
                if role.get("Ref", "").startswith(f"Functions{name.capitalize()}Role"):
                    by_function[name] += resource["Properties"]["PolicyDocument"]["Statement"]
    return by_function


def _as_list(value: Json) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _short(value: Json) -> str:
    """A short text for a CloudFormation reference."""
    if isinstance(value, str):
        return value
    (function, argument), *_ = value.items()
    match function:
        case "Ref":
            return _SHORT.get(argument, str(argument))
        case "Fn::GetAtt":
            return str(argument[0] if isinstance(argument, list) else argument)
        case "Fn::Join":
            return str(argument[0].join(_short(part) for part in argument[1]))
        case _:
            return f"{function}({argument})"


def _conditions(conditions: Mapping[str, Any]) -> Iterator[str]:
    for operator, keys in conditions.items():
        for key, value in keys.items():
            yield f"{operator} `{key}` = " + ", ".join(f"`{_short(v)}`" for v in _as_list(value))
