"""Checks before CustomResourceDefinitions are applied that nobody else owns those of the cluster.

The stack's own definitions have Karpenter's names, and ``kubectl apply`` overwrites what it finds. EKS Auto Mode and
other installations of Karpenter's kinds would lose theirs, or would change them back. So a custom resource runs this
function before each new version of the definitions is applied. It only reads. A deployment fails, before anything is
overwritten, if a definition belongs to neither Tenon nor Karpenter. That of CapacityBuffers must be Tenon's: Cluster
Autoscaler and Karpenter share it, so nobody can tell whose it is.

The function is this module, ``custom_resource.py`` and ``shared/cluster/eks_token.py`` alone: it needs nothing but what
Lambda's runtime has.
"""

from __future__ import annotations

import os
import urllib.error
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from infra.cluster.kubernetes import custom_resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OWNER_ANNOTATION = "tenon.sh/applied-by"
"""The annotation of definitions that Tenon applied. Not the label that Helm checks, so that Karpenter's chart can take
the definitions back."""
OWNER = "tenon"
_MANAGED_BY = "app.kubernetes.io/managed-by"
_HELM, _HELM_RELEASE = "Helm", "meta.helm.sh/release-name"
_GENERATED = "controller-gen.kubebuilder.io/version"
"""The annotation of every definition that Karpenter publishes."""
_KARPENTER = "karpenter"
CAPACITY_BUFFERS = "capacitybuffers.autoscaling.x-k8s.io"
_AUTO_MODE_MANAGER = "eks"
_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"


def foreign_owner(definition: Mapping[str, Any], *, auto_mode: bool) -> str:
    """Who owns the definition, in words; empty if it may be overwritten.

    ``auto_mode`` tells whether EKS Auto Mode is on, which then manages definitions of Karpenter's names.
    """
    if definition["metadata"]["name"] == CAPACITY_BUFFERS:
        return _other_autoscaler(definition)
    return _owner_besides_karpenter(definition, auto_mode=auto_mode)


def _other_autoscaler(definition: Mapping[str, Any]) -> str:
    annotations = definition["metadata"].get("annotations") or {}
    if annotations.get(OWNER_ANNOTATION) == OWNER:
        return ""
    return str(annotations.get(_HELM_RELEASE, "another autoscaler"))


def _owner_besides_karpenter(definition: Mapping[str, Any], *, auto_mode: bool) -> str:
    metadata = definition["metadata"]
    annotations = metadata.get("annotations") or {}
    manager = (metadata.get("labels") or {}).get(_MANAGED_BY, "")
    if owners := metadata.get("ownerReferences"):
        return f"{owners[0]['kind']} {owners[0]['name']}"
    if manager == _HELM:
        return _foreign_release(str(annotations.get(_HELM_RELEASE, "")))
    if manager.lower() not in {"", OWNER, _KARPENTER}:
        return str(manager)
    if annotations.get(OWNER_ANNOTATION) == OWNER:
        return ""
    managers = [str(entry.get("manager", "")) for entry in metadata.get("managedFields") or []]
    if auto_mode or any(name == _AUTO_MODE_MANAGER or name.startswith(f"{_AUTO_MODE_MANAGER}-") for name in managers):
        return "EKS Auto Mode"
    return "" if _GENERATED in annotations else "an unknown owner"


def _foreign_release(release: str) -> str:
    """The Helm release in words; "" for Karpenter's, and for that of Tenon's own chart (distribution/chart.py)."""
    own = any(name in release.lower() for name in (_KARPENTER, OWNER))
    return "" if own else f"Helm release {release}"


def has_auto_mode(description: Mapping[str, Any]) -> bool:
    """Whether EKS Auto Mode is on, by the description of the cluster."""
    return bool(description.get("computeConfig", {}).get("enabled"))


def ownership_errors(definitions: Sequence[Mapping[str, Any]], *, auto_mode: bool) -> Iterator[str]:
    """A sentence for each definition that may not be overwritten."""
    for definition in definitions:
        if owner := foreign_owner(definition, auto_mode=auto_mode):
            name = definition["metadata"]["name"]
            yield f"CustomResourceDefinition {name} belongs to {owner}, not to Tenon or Karpenter"


def keeping_option(definitions: Sequence[Mapping[str, Any]], *, auto_mode: bool) -> str:
    """The option of a deployment that leaves the definitions of other owners as they are."""
    foreign = {d["metadata"]["name"] for d in definitions if foreign_owner(d, auto_mode=auto_mode)}
    return "-c capacityBuffers=kept" if foreign == {CAPACITY_BUFFERS} else "-c kinds=kept"


def read_definitions(server: custom_resource.ApiServer, names: Sequence[str]) -> list[dict[str, Any]]:
    """The cluster's definitions of these names, without those that don't exist.

    Raises:
        OSError: the API server can't be reached, or denies the request.
    """
    definitions = []
    for name in names:
        try:
            definitions.append(server.request("GET", f"{_PATH}{name}"))
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
    return definitions


def handle(event: Mapping[str, Any], _context: object) -> None:
    """CloudFormation's request of a custom resource: the answer is sent to its ``ResponseURL``."""
    reason = ""
    if event["RequestType"] != "Delete":
        try:
            reason = check(os.environ[custom_resource.CLUSTER_VARIABLE], event["ResourceProperties"]["Names"])
        except Exception as error:  # noqa: BLE001 (without an answer CloudFormation waits for an hour)
            reason = f"The CustomResourceDefinitions of the cluster can't be read ({type(error).__name__}: {error})"
            reason += ". Deploy with -c kinds=kept to leave them as they are"
    custom_resource.answer(event, reason=reason)


def check(cluster: str, names: Sequence[str]) -> str:
    """Why the definitions may not be applied to the cluster, and what to do, in sentences; empty if they may.

    Raises:
        OSError: the API server can't be reached, or denies the request.
        ClientError: EKS denies or throttles the call.
    """
    server, description = custom_resource.connect(cluster)
    definitions = custom_resource.once_access_is_known(lambda: read_definitions(server, names))
    auto_mode = has_auto_mode(description)
    errors = "; ".join(ownership_errors(definitions, auto_mode=auto_mode))
    option = keeping_option(definitions, auto_mode=auto_mode)
    return f"{errors}. Deploy with {option} to leave them as they are" if errors else ""
