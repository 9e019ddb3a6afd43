"""The ValidatingWebhookConfiguration of ``-c relay=webhook``, and the function that applies it during a deployment.

The path of its URL is a secret: whoever knows it could invoke the webhook function. So a function of the stack's own
generates it and applies the configuration, because the CDK's kubectl function logs all that it applies. The path is in
the cluster and in CloudFormation's store, which masks it; the webhook function only has its digest. Nothing here logs.

The function is this module, ``custom_resource.py`` and ``shared/cluster/eks_token.py`` alone: it needs nothing but what
Lambda's runtime has.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import urllib.error
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from infra.cluster.kubernetes import custom_resource

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "tenon"
PATH_TYPE, CONFIGURATION_TYPE = "Custom::TenonWebhookPath", "Custom::TenonWebhookConfiguration"
TIMEOUT_SECONDS = 1
"""How long the API server waits for the function at most: the least that Kubernetes allows."""
_COLLECTION = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_BYTES = 32


def configuration(url: str) -> dict[str, Any]:
    """The configuration that calls this URL for each new pod that may need a node; a pod never fails by it."""
    conditions = {
        "without-node": "!has(object.spec.nodeName) || object.spec.nodeName == ''",
        "not-gated": "!has(object.spec.schedulingGates) || size(object.spec.schedulingGates) == 0",
        "not-of-a-daemonset": (
            "!has(object.metadata.ownerReferences) || "
            "!object.metadata.ownerReferences.exists(owner, owner.kind == 'DaemonSet')"
        ),
    }
    webhook = {
        "name": "pods.tenon.sh",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": url},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }
        ],
        "matchConditions": [{"name": name, "expression": text} for name, text in conditions.items()],
        "failurePolicy": "Ignore",
        # The function sends no hint about a dry run.
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_SECONDS,
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [webhook],
    }


def digest(path: str) -> str:
    """The digest of a secret path, as the webhook function compares it."""
    return hashlib.sha256(path.encode()).hexdigest()


def handle(event: Mapping[str, Any], _context: object) -> None:
    """CloudFormation's request of a custom resource: the answer is sent to its ``ResponseURL``."""
    reason, data = "", None
    try:
        if event["ResourceType"] == PATH_TYPE:
            data = _new_path() if event["RequestType"] != "Delete" else None
        else:
            _apply(os.environ[custom_resource.CLUSTER_VARIABLE], event)
    except Exception as error:  # noqa: BLE001 (without an answer CloudFormation waits for an hour)
        # Texts of errors may quote what was sent.
        code = f" {error.code}" if isinstance(error, urllib.error.HTTPError) else ""
        reason = f"The webhook's configuration can't be changed ({type(error).__name__}{code})"
    custom_resource.answer(event, reason=reason, data=data)


def _new_path() -> dict[str, str]:
    path = secrets.token_urlsafe(_BYTES)
    return {"Path": path, "Digest": digest(path)}


def _apply(cluster: str, event: Mapping[str, Any]) -> None:
    """Apply or delete the configuration; a cluster that is gone has none."""
    is_deletion = event["RequestType"] == "Delete"
    try:
        server, _ = custom_resource.connect(cluster)
    except ClientError as error:
        if is_deletion and error.response["Error"]["Code"] == "ResourceNotFoundException":
            return
        raise
    if is_deletion:
        custom_resource.once_access_is_known(lambda: _delete(server))
        return
    wanted = configuration(event["ResourceProperties"]["Url"])
    path = f"{_COLLECTION}/{NAME}?fieldManager=tenon&force=true"
    custom_resource.once_access_is_known(
        lambda: server.request("PATCH", path, wanted, content_type="application/apply-patch+yaml")
    )


def _delete(server: custom_resource.ApiServer) -> None:
    try:
        server.request("DELETE", f"{_COLLECTION}/{NAME}")
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
