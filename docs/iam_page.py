"""The page of permissions: every statement of every function's role, from the synthesised template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docs.descriptions import PURPOSES
from docs.markdown import complete, table
from infra import assembly, function_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
_CLUSTER = "NAME"
_SHORT = {"AWS::Region": "REGION", "AWS::AccountId": "ACCOUNT", "AWS::Partition": "aws"}


def page() -> str:
    """Each function's statements, with what each is for."""
    kept = assembly.cached(cluster=_CLUSTER, root=ROOT, context={"bundle": "source"})
    template = json.loads(next(kept.glob("*.template.json")).read_text(encoding="utf-8"))
    lines = [
        "# Permissions",
        "",
        (
            "Each function has a role of its own. These are all their statements, from the template that `cdk deploy` "
            "uses; tests run the functions under exactly these policies. Names of the stack's own resources are "
            "shortened. What functions may do in the cluster is in the ClusterRoles that `tenon manifests` prints."
        ),
        "",
    ]
    said: set[str] = set()
    for name, statements in _statements(template).items():
        said |= {_name(s) for s in statements}
        rows = [
            (
                _name(s),
                "<br>".join(f"`{a}`" for a in _listed(s["Action"])),
                "<br>".join(f"`{_short(r)}`" for r in _listed(s["Resource"])),
                "<br>".join(_conditions(s.get("Condition", {}))),
                PURPOSES.get(_name(s), ""),
            )
            for s in statements
        ]
        lines += [f"## {name}", "", *table(("statement", "actions", "on", "only if", "what for"), rows), ""]
    complete("statement", said, set(PURPOSES))
    return "\n".join(lines)


def _name(statement: Mapping[str, Any]) -> str:
    """Its Sid; the CDK's own grants have none, and are known by their first action."""
    return str(statement.get("Sid") or _listed(statement["Action"])[0])


def _statements(template: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in function_sizes.FUNCTIONS}
    for resource in template["Resources"].values():
        if resource["Type"] != "AWS::IAM::Policy":
            continue
        for role in resource["Properties"]["Roles"]:
            for name in function_sizes.FUNCTIONS:
                if role.get("Ref", "").startswith(f"Functions{name.capitalize()}Role"):
                    found[name] += resource["Properties"]["PolicyDocument"]["Statement"]
    return found


def _listed(value: Any) -> list[Any]:  # noqa: ANN401 (JSON: one or several)
    return value if isinstance(value, list) else [value]


def _short(value: Any) -> str:  # noqa: ANN401 (JSON: a text or a reference)
    """A reference of CloudFormation's as a person would say it."""
    if isinstance(value, str):
        return value
    (function, of), *_ = value.items()
    match function:
        case "Ref":
            return _SHORT.get(of, str(of))
        case "Fn::GetAtt":
            return str(of[0] if isinstance(of, list) else of)
        case "Fn::Join":
            return str(of[0].join(_short(part) for part in of[1]))
        case _:
            return f"{function}({of})"


def _conditions(conditions: Mapping[str, Any]) -> Iterator[str]:
    for operator, keys in conditions.items():
        for key, value in keys.items():
            yield f"{operator} `{key}` = " + ", ".join(f"`{_short(v)}`" for v in _listed(value))
