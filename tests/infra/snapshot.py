"""The template in few words: what is in it, and every fact that somebody might change without meaning to.

``python -m tests.infra.snapshot`` writes snapshot.txt again, shadow.txt, that of shadow mode, and fleet.txt, that of
what the clusters of a fleet share; their diff is what a reviewer reads. Logical ids are without their hashes,
references are names, and what says nothing about behaviour is left out.
"""

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from infra import assembly
from tests.infra.resolved_template import resolved

KEPT = Path(__file__).with_name("snapshot.txt")
KEPT_BY_MODE = {
    "active": KEPT,
    "shadow": Path(__file__).with_name("shadow.txt"),
    "fleet": Path(__file__).with_name("fleet.txt"),
}
_HASH = re.compile(r"(?<=[a-z])[0-9A-F]{8}\b")
_SILENT = frozenset({"Code", "Description", "Tags", "Metadata", "PolicyName", "Version"})
_LONGEST = 400


def words(template: Mapping[str, Any]) -> str:
    """The template's resources by type and name, a line a property, a line a policy's statement."""
    lines: list[str] = []
    for id_, resource in sorted(template["Resources"].items(), key=lambda item: (item[1]["Type"], item[0])):
        if resource["Type"] == "AWS::CDK::Metadata":
            continue
        kept = "  (stays when the stack goes)" if resource.get("DeletionPolicy") == "Retain" else ""
        lines.append(f"{resource['Type'].removeprefix('AWS::')} {id_}{kept}")
        lines += [f"    {line}" for line in _properties(resource.get("Properties", {}))]
    return _HASH.sub("", "\n".join(lines)) + "\n"


def _properties(properties: Mapping[str, Any]) -> Iterator[str]:
    for key, value in sorted(properties.items()):
        if key in _SILENT:
            continue
        if isinstance(value, dict) and "Statement" in value:
            yield from (f"{key}: {_statement(element)}" for element in value["Statement"])
        elif isinstance(value, list) and value and all(isinstance(element, dict) for element in value):
            yield from (f"{key}: {_short(element)}" for element in value)
        else:
            yield f"{key}: {_short(value)}"


def _statement(statement: Mapping[str, Any]) -> str:
    parts = [statement["Effect"].lower(), _short(statement["Action"])]
    if "Resource" in statement:
        parts += ["on", _short(statement["Resource"])]
    if "Principal" in statement:
        parts += ["by", _short(statement["Principal"])]
    if "Condition" in statement:
        parts += ["if", _short(statement["Condition"])]
    return " ".join(parts)


def _short(value: Any) -> str:
    resolved_value = resolved(value)
    text = resolved_value if isinstance(resolved_value, str) else json.dumps(resolved_value, sort_keys=True)
    if len(text) > _LONGEST:
        return f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text


def of_mode(mode: str) -> dict[str, Any]:
    """The template of a mode."""
    own = {"active": {}, "shadow": {"mode": "shadow"}, "fleet": {"fleet": "prod", "clusters": "demo"}}[mode]
    context = {"bundle": "source", "clusterSide": "printed", **own}
    folder = assembly.cached(cluster="" if mode == "fleet" else "demo", root=assembly.CHECKOUT, context=context)
    stack = "tenon--fleet-prod" if mode == "fleet" else "tenon-demo"
    template: dict[str, Any] = json.loads((folder / f"{stack}.template.json").read_text())
    return template


def main() -> None:
    """Write all."""
    for mode, path in KEPT_BY_MODE.items():
        path.write_text(words(of_mode(mode)))
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
