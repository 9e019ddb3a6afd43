"""RBAC of the functions that run during deployments, besides the CDK's: each may touch the objects that it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.cluster.kubernetes import cluster_manifests, webhook_configuration

if TYPE_CHECKING:
    from infra.cluster.kubernetes.cluster_manifests import Obj

KINDS_CHECK = "kinds-check"
WEBHOOK_CONFIGURATION = "webhook-configuration"


def kinds_check() -> list[Obj]:
    """For the function that checks who owns the definitions: to read these, by name."""
    rule = ("apiextensions.k8s.io", ("customresourcedefinitions",), ("get",))
    role, binding = cluster_manifests.role_and_binding("Cluster", f"tenon-{KINDS_CHECK}", [rule], _subject(KINDS_CHECK))
    role["rules"][0]["resourceNames"] = [crd["metadata"]["name"] for crd in cluster_manifests.kinds()]
    return [role, binding]


def webhook() -> list[Obj]:
    """For the function that applies the webhook's configuration: this object only."""
    configurations = ("validatingwebhookconfigurations",)
    rules = [
        ("admissionregistration.k8s.io", configurations, ("patch", "delete")),
        # No name limits it: the name of a new object isn't known to RBAC.
        ("admissionregistration.k8s.io", configurations, ("create",)),
    ]
    name = f"tenon-{WEBHOOK_CONFIGURATION}"
    role, binding = cluster_manifests.role_and_binding("Cluster", name, rules, _subject(WEBHOOK_CONFIGURATION))
    role["rules"][0]["resourceNames"] = [webhook_configuration.NAME]
    return [role, binding]


def _subject(function: str) -> Obj:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": cluster_manifests.group(function)}
