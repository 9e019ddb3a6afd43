"""The fields that Kubernetes and Karpenter publish, by version: read from kubernetes.txt and karpenter.txt.

A field is a path: ``spec.containers[].ports[].hostPort``, ``[]`` for the items of a list, ``{}`` for the values of a
map. Types that many kinds share are listed once, and the path that leads to one ends with ``-> Type``. Versions stand
in brackets where not all of a file's versions have the field.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from shared.base.struct import MutableStruct, Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HERE = Path(__file__).parent
_LINE = re.compile(r"(?P<path>\S+)(?: -> (?P<type>\w+))?(?: \[(?P<versions>[\d. ]+)\])?")
_SOURCE = re.compile(r"# (?P<version>[\d.]+): (?P<source>.+)")


class Field(Struct):
    """A published field; ``type`` is the shared type that it leads to, or empty."""

    kind: str
    path: str
    type: str = ""


class Schemas(MutableStruct):
    """The fields of a product: the versions that have each of them, and the source of each version."""

    sources: dict[str, str] = {}
    versions: dict[Field, frozenset[str]] = {}

    def fields(self, version: str = "") -> tuple[Field, ...]:
        """The fields of one version, or of all."""
        return tuple(f for f, versions in self.versions.items() if not version or version in versions)

    def add(self, version: str, source: str, fields: Iterable[Field]) -> None:
        """Put the fields of one version in place of what was known of it."""
        self.sources = dict(sorted({**self.sources, version: source}.items()))
        known = {f: versions - {version} for f, versions in self.versions.items()}
        for each in fields:
            known[each] = known.get(each, frozenset()) | {version}
        kept = {f: versions for f, versions in known.items() if versions}
        self.versions = dict(sorted(kept.items(), key=lambda e: (e[0].kind, e[0].path)))


def load(name: str) -> Schemas:
    """The fields of "kubernetes" or "karpenter"."""
    schemas = Schemas()
    kind = ""
    path = HERE / f"{name}.txt"
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if source := _SOURCE.fullmatch(line):
            schemas.sources[source["version"]] = source["source"]
        elif line.startswith("["):
            kind = line.strip("[]")
        elif match := _LINE.fullmatch(line):
            versions = match["versions"].split() if match["versions"] else schemas.sources
            schemas.versions[Field(kind, match["path"], match["type"] or "")] = frozenset(versions)
    return schemas


def save(name: str, schemas: Schemas) -> None:
    """Write the file that :func:`load` reads."""
    lines = [f"# {version}: {source}" for version, source in schemas.sources.items()]
    by_kind: dict[str, list[str]] = {}
    for each, versions in schemas.versions.items():
        by_kind.setdefault(each.kind, []).append(_line(each, versions, schemas.sources))
    for kind, paths in by_kind.items():
        lines += ["", f"[{kind}]", *paths]
    (HERE / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _line(each: Field, versions: frozenset[str], sources: Mapping[str, str]) -> str:
    type_ = f" -> {each.type}" if each.type else ""
    return each.path + type_ + ("" if versions == sources.keys() else f" [{' '.join(sorted(versions))}]")
