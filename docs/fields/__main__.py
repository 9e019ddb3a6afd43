"""Reads the fields of a published version, such as ``python -m docs.fields --kubernetes 1.37``.

``--karpenter 1.15`` reads Karpenter's, ``--kubelet 0.37`` those of the kubelet's configuration. ``--hardware 1.15``
reads what Karpenter knows of instance types.

Needs Go, whose module proxy has the sources: the newest patch release of the version is read. Kubernetes publishes its
OpenAPI document in ``k8s.io/kubernetes``, Karpenter its definitions in two modules, and the kubelet's configuration is
a Go type in ``k8s.io/kubelet``. All are under the Apache License 2.0; only the names and types of fields are kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from docs.fields import flatten, hardware, schemas
from docs.fields.go_modules import downloaded, printed
from shared.api.validation.kubelet import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from docs.fields.schemas import Field

_KUBERNETES = "k8s.io/kubernetes"
_OPENAPI = "api/openapi-spec/swagger.json"
_KUBELET = "k8s.io/kubelet"
_KUBELET_TYPES = Path(__file__).parent / "kubelet_types.go"
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
    parser.add_argument("--kubelet", metavar="MINOR", help="such as 0.37")
    parser.add_argument("--hardware", metavar="MINOR", help="instance types by Karpenter's tables, such as 1.15")
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
    if args.kubelet:
        release, _ = downloaded(_KUBELET, args.kubelet)
        table = {
            "source": f"config/v1beta1 of {_KUBELET} {release}, Apache-2.0",
            "version": release.replace("v0.", "v1.").rpartition(".")[0],
            "fields": json.loads(printed(_KUBELET_TYPES, _KUBELET, release)),
        }
        TABLE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    if args.hardware:
        hardware.save(args.hardware)
    return 0


def _keep(name: str, minor: str, source: str, fields: Iterable[Field]) -> None:
    known = schemas.load(name)
    known.add(minor, source, fields)
    schemas.save(name, known)


if __name__ == "__main__":
    raise SystemExit(main())
