"""The stack of a cluster called "demo", synthesised once and cached."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra import assembly

Resources = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def cloud_assembly() -> Path:
    return assembly.cached(
        cluster="demo", root=assembly.CHECKOUT, context={"bundle": "source", "clusterSide": "printed"}
    )


@pytest.fixture(scope="session")
def with_relay_pod() -> dict[str, Any]:
    """The template of a stack whose relay is a pod."""
    context = {"bundle": "source", "clusterSide": "printed", "relay": "pod"}
    folder = assembly.cached(cluster="demo", root=assembly.CHECKOUT, context=context)
    document: dict[str, Any] = json.loads((folder / "tenon-demo.template.json").read_text())
    return document


@pytest.fixture(scope="session")
def template(cloud_assembly: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((cloud_assembly / "tenon-demo.template.json").read_text())
    return document


@pytest.fixture(scope="session")
def of_type(template: dict[str, Any]) -> Callable[[str], Resources]:
    """The properties of all resources of a type, by logical id."""

    def select(kind: str) -> Resources:
        return {
            id_: resource.get("Properties", {})
            for id_, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    return select


@pytest.fixture(scope="session")
def functions(of_type: Callable[[str], Resources]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each function's logical id and properties, by the function's name."""
    return {
        properties["Handler"].split(".")[1]: (id_, properties)
        for id_, properties in of_type("AWS::Lambda::Function").items()
    }


@pytest.fixture(scope="session")
def granted(
    of_type: Callable[[str], Resources], functions: dict[str, tuple[str, dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """What each function's role allows, statement by statement, with actions and resources as lists."""
    by_role: dict[str, list[dict[str, Any]]] = {}
    for policy in of_type("AWS::IAM::Policy").values():
        for role in policy["Roles"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                listed = {
                    key: value if isinstance(value, list) else [value]
                    for key, value in statement.items()
                    if key in {"Action", "Resource"}
                }
                by_role.setdefault(role["Ref"], []).append({**statement, **listed})
    return {name: by_role[properties["Role"]["Fn::GetAtt"][0]] for name, (_, properties) in functions.items()}
