"""The kind PodGroup of the coscheduling plugin, which a cluster has where the plugin is installed."""

from __future__ import annotations

from typing import Any


def definition() -> dict[str, Any]:
    """The PodGroups of the coscheduling plugin."""
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": spec}}},
    }
    group = "scheduling.x-k8s.io"
    kind = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {"group": group, "names": kind, "scope": "Namespaced", "versions": [version]},
    }
