"""Reads the fields of a published version: ``python -m docs.fields --kubernetes 1.37`` or ``--karpenter 1.15``.

Needs Go, whose module proxy has the sources: the newest patch release of the version is read. Kubernetes publishes its
OpenAPI document in ``k8s.io/kubernetes``, Karpenter its definitions in two modules. Both are under the Apache License
2.0; only the names of fields are kept.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

import yaml

from docs.fields import flatten, schemas
from docs.fields.go_modules import downloaded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from docs.fields.schemas import Field

_KUBERNETES = "k8s.io/kubernetes"
_OPENAPI = "api/openapi-spec/swagger.json"
_KARPENTER = {
    "sigs.k8s.io/karpenter": ("nodepools", "nodeclaims", "nodeoverlays"),
    "github.com/aws/karpenter-provider-aws": ("ec2nodeclasses",),
}
"""Karpenter's modules, and the kinds whose definitions are read from each."""


def main() -> int:
    """Read the versions that are asked for."""
    parser = argparse.ArgumentParser(description="Reads the fields of a published version.")
    parser.add_argument("--kubernetes", metavar="MINOR", action="append", default=[], help="such as 1.37")
    parser.add_argument("--karpenter", metavar="MINOR", action="append", default=[], help="such as 1.15")
    args = parser.parse_args()
    for minor in args.kubernetes:
        release, folder = downloaded(_KUBERNETES, minor)
        document = json.loads((folder / _OPENAPI).read_text(encoding="utf-8"))
        source = f"{_OPENAPI} of {_KUBERNETES} {release}, Apache-2.0"
        _keep("kubernetes", minor, source, flatten.of_kubernetes(document["definitions"]))
    for minor in args.karpenter:
        modules = [(module, *downloaded(module, minor), kinds) for module, kinds in _KARPENTER.items()]
        files = [
            next((folder / "pkg/apis/crds").glob(f"*_{plural}.yaml"))
            for _, _, folder, kinds in modules
            for plural in kinds
        ]
        definitions = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
        source = "pkg/apis/crds of " + " and ".join(f"{m} {release}" for m, release, *_ in modules) + ", Apache-2.0"
        _keep("karpenter", minor, source, [f for d in definitions for f in flatten.of_definition(d)])
    return 0


def _keep(name: str, minor: str, source: str, fields: Iterable[Field]) -> None:
    known = schemas.load(name)
    known.add(minor, source, fields)
    schemas.save(name, known)


if __name__ == "__main__":
    raise SystemExit(main())
