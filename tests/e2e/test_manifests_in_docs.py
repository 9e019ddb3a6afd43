"""Every manifest in the docs is accepted by the API server, field by field, and by the functions."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.e2e.pod_groups import definition

if TYPE_CHECKING:
    from local.world import World

pytestmark = pytest.mark.flow

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]
SERVERS_OWN = {"status", "metadata"}
"""Fields that the server sets, so what is written isn't what is read."""


OF_OTHER_CONTROLLERS = ("argocd", "flux-system")
"""Namespaces whose objects are for Argo CD and Flux, which aren't here: tests/unit/docs/test_gitops_examples.py."""


def manifests(page: Path) -> list[dict[str, Any]]:
    """The complete objects in a page's YAML blocks, but for those of other controllers."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    documents = [doc for text in blocks for doc in yaml.safe_load_all(text.replace("NAME", "demo"))]
    objects = [
        doc for doc in documents if isinstance(doc, dict) and "kind" in doc and "name" in doc.get("metadata", {})
    ]
    return [obj for obj in objects if obj["metadata"].get("namespace") not in OF_OTHER_CONTROLLERS]


WITH_MANIFESTS = [page for page in PAGES if manifests(page)]


def missing(written: object, stored: object, path: str = "") -> list[str]:
    """The fields that the server has dropped."""
    if isinstance(written, dict) and isinstance(stored, dict):
        lost = [f"{path}.{key}" for key in written if key not in stored]
        return lost + [
            f for key in written if key in stored for f in missing(written[key], stored[key], f"{path}.{key}")
        ]
    if isinstance(written, list) and isinstance(stored, list):
        # Admission appends to lists, such as the tolerations of a pod.
        pairs = zip(written, stored[: len(written)], strict=True)
        return [f for i, (w, s) in enumerate(pairs) for f in missing(w, s, f"{path}[{i}]")]
    return []


def test_manifests_are_accepted_with_all_their_fields(world: World) -> None:
    world.apply(definition())
    dropped = {}
    for page in WITH_MANIFESTS:
        for manifest in manifests(page):
            world.apply(manifest)
            kind, metadata = world.store.kind(manifest["apiVersion"], manifest["kind"]), manifest["metadata"]
            namespace = metadata.get("namespace", "default") if kind.namespaced else ""
            stored = world.store.get(kind, metadata["name"], namespace=namespace)
            for field in manifest.keys() - SERVERS_OWN:
                dropped[page.name, metadata["name"], field] = missing(manifest[field], stored[field], field)
    assert len(dropped) > 40
    assert {where: fields for where, fields in dropped.items() if fields} == {}


def test_the_node_pools_and_classes_of_all_pages_are_valid(world: World) -> None:
    kinds = {"NodePool": "karpenter.sh/v1", "EC2NodeClass": "karpenter.k8s.aws/v1"}
    world.apply([m for page in WITH_MANIFESTS for m in manifests(page) if m["kind"] in kinds])
    world.run_for(timedelta(minutes=2))
    for kind, api_version in kinds.items():
        for obj in world.store.list(world.store.kind(api_version, kind)):
            conditions = {c["type"]: c for c in obj["status"]["conditions"]}
            assert conditions["ValidationSucceeded"]["status"] == "True", obj
