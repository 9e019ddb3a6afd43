"""What the kinds' schemas require: each field's type, and every rule that could reject an object.

``python -m tests.unit.api.crd_facts`` writes crd_facts.txt again, a line a field. Objects that are stored in clusters
were accepted by it, so a change of it that does more than add lines must be announced to users.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from shared.api import crds

Facts = Mapping[str, Mapping[str, Any]]
KEPT = Path(__file__).with_name("crd_facts.txt")
_SILENT = frozenset({"description", "properties", "items", "additionalProperties", "default"})
"""What refuses nothing by itself."""


def now() -> Facts:
    """By "plural.group/version path", the facts of every field of every served version."""
    return {
        f"{crd['metadata']['name']}/{version['name']}{path}": facts
        for crd in crds.load()
        for version in crd["spec"]["versions"]
        if version["served"]
        for path, facts in _fields(version["schema"]["openAPIV3Schema"], " ")
    }


def kept() -> Facts:
    """What was kept when the kinds were last released."""
    rows = (line.partition("\t") for line in KEPT.read_text(encoding="utf-8").splitlines())
    return {path: json.loads(facts) for path, _, facts in rows}


def broken(before: Facts, after: Facts) -> list[str]:
    """What the later schema could refuse of that which the earlier one accepted, a sentence each."""
    faults = [f"{path} is gone" for path in before if path not in after]
    for path in before.keys() & after.keys():
        old, new = before[path], after[path]
        if old.get("type") != new.get("type"):
            faults.append(f"{path} was {old.get('type')}, and is {new.get('type')}")
        faults += [f"{path} must have {name}" for name in set(new.get("required", [])) - set(old.get("required", []))]
        if "enum" in new and ("enum" not in old or set(old["enum"]) - set(new["enum"])):
            faults.append(f"{path} may only be {new['enum']}")
        constraints = new.keys() - {"type", "required", "enum"}
        faults += [f"{path} has {rule} {new[rule]}" for rule in constraints if old.get(rule) != new[rule]]
    return sorted(faults)


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield path, {rule: value for rule, value in schema.items() if rule not in _SILENT}
    for name, inner in schema.get("properties", {}).items():
        yield from _fields(inner, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], f"{path}{{}}")


if __name__ == "__main__":
    lines = (f"{path}\t{json.dumps(facts, sort_keys=True)}\n" for path, facts in sorted(now().items()))
    KEPT.write_text("".join(lines), encoding="utf-8")
    sys.stderr.write(f"{KEPT}\n")
