"""The template in few words: what is in it, and every fact that somebody might change without meaning to.

``python -m tests.infra.snapshot`` writes snapshot.txt anew; its diff is what a reviewer reads. Logical ids are without
their hashes, references are names, and what says nothing about behaviour is left out.
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


def _short(value: Any) -> str:  # noqa: ANN401 - any part of a template
    resolved_value = resolved(value)
    text = resolved_value if isinstance(resolved_value, str) else json.dumps(resolved_value, sort_keys=True)
    if len(text) > _LONGEST:
        return f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return text


def main() -> None:
    """Write it."""
    kept = assembly.cached(
        cluster="demo", root=assembly.CHECKOUT, context={"bundle": "source", "clusterSide": "printed"}
    )
    KEPT.write_text(words(json.loads((kept / "tenon-demo.template.json").read_text())))
    sys.stdout.write(f"{KEPT}\n")


if __name__ == "__main__":
    main()
