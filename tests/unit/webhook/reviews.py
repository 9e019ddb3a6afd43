"""Reviews as an API server sends them."""

from __future__ import annotations

from typing import Any


def review(**request: Any) -> dict[str, Any]:
    """A review of the creation of ``team/web-1``, with these fields of its request changed."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "namespace": "team", "annotations": {"note": "CONFIDENTIAL"}},
        "spec": {
            "containers": [{"name": "app", "image": "CONFIDENTIAL", "env": [{"name": "A", "value": "CONFIDENTIAL"}]}]
        },
    }
    whole = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "team",
        "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": whole}


def pod(metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pod ``web-1`` with more metadata and spec."""
    return {"metadata": {"name": "web-1", "namespace": "team", **(metadata or {})}, "spec": {**(spec or {})}}
