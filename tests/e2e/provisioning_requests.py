"""The kind ProvisioningRequest, which a cluster has where a queue such as Kueue is installed, and requests of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.world import World

GROUP = "autoscaling.x-k8s.io"
ATOMIC = f"best-effort-atomic-scale-up.{GROUP}"
CHECK = f"check-capacity.{GROUP}"


def definition() -> dict[str, Any]:
    """The kind, with a status of its own."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    kind = {
        "plural": "provisioningrequests",
        "singular": "provisioningrequest",
        "kind": "ProvisioningRequest",
        "listKind": "ProvisioningRequestList",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"provisioningrequests.{GROUP}"},
        "spec": {"group": GROUP, "names": kind, "scope": "Namespaced", "versions": [version]},
    }


def request(name: str, *, count: int, provisioning_class: str = ATOMIC, **parameters: str) -> dict[str, Any]:
    """A request for pods of the PodTemplate of the same name."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "provisioningClassName": provisioning_class,
            "parameters": parameters,
            "podSets": [{"count": count, "podTemplateRef": {"name": name}}],
        },
    }


def pod_template(name: str, requests: Mapping[str, str]) -> dict[str, Any]:
    """The template of the request's pods."""
    container = {"name": "main", "image": "train:1", "resources": {"requests": dict(requests)}}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}},
    }


def conditions(world: World, name: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition of the request."""
    stored = world.store.get(world.store.kind(f"{GROUP}/v1", "ProvisioningRequest"), name, namespace="default")
    listed = stored.get("status", {}).get("conditions", [])
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in listed}
