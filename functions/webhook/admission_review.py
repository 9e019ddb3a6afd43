"""AdmissionReviews of the API server: which pod is created, and the response that always allows it.

Only the fields that a hint needs are read. The pod's own text never leaves this module, except its namespace and name,
and only if Kubernetes would allow them.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import msgspec

from shared.base.struct import Struct, WireStruct

MAX_BYTES = 3 * 1024 * 1024
"""The largest request body of an API server; a review holds one object."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
_API_VERSION, _KIND = "admission.k8s.io/v1", "AdmissionReview"


class _Owner(WireStruct):
    kind: str = ""


class _Metadata(WireStruct, rename="camel"):
    name: str = ""
    owner_references: list[_Owner] | None = None


class _Spec(WireStruct, rename="camel"):
    node_name: str = ""
    scheduling_gates: list[dict[str, Any]] | None = None


class _Pod(WireStruct):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


class _Resource(WireStruct):
    group: str = ""
    resource: str = ""


class _Request(WireStruct, rename="camel"):
    uid: str
    operation: str
    resource: _Resource
    object: _Pod
    namespace: str = ""
    name: str = ""
    sub_resource: str = ""
    dry_run: bool = False


class _Review(WireStruct, rename="camel"):
    api_version: str
    kind: str
    request: _Request


class CreatedPod(Struct, kw_only=True):
    """A pod that is being created: the request's ``uid``, the pod's ``key``, and whether it may need a node.

    DaemonSets' pods, pods with a node or scheduling gates, and dry runs never need one. The webhook's matchConditions
    leave them out; API servers without matchConditions send them.
    """

    uid: str
    key: str
    may_need_node: bool


class MalformedReviewError(ValueError):
    """The request isn't a review of a pod's creation; the text doesn't quote it."""


def created_pod(body: str, *, is_base64: bool) -> CreatedPod:
    """The pod in the body of a request.

    Raises:
        MalformedReviewError: it is too large, or isn't a review of a pod's creation.
    """
    if len(body) > MAX_BYTES:
        raise MalformedReviewError("the body is too large")
    try:
        review = msgspec.json.decode(base64.b64decode(body, validate=True) if is_base64 else body, type=_Review)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise MalformedReviewError("the body isn't an AdmissionReview") from error
    request, pod = review.request, review.request.object
    is_pod = (request.resource.group, request.resource.resource, request.sub_resource) == ("", "pods", "")
    if (review.api_version, review.kind, request.operation) != (_API_VERSION, _KIND, "CREATE") or not is_pod:
        raise MalformedReviewError("the review isn't of a pod's creation")
    name = pod.metadata.name or request.name
    if not (_UID.fullmatch(request.uid) and _NAMESPACE.fullmatch(request.namespace) and _NAME.fullmatch(name)):
        raise MalformedReviewError("the review's uid, or the pod's name or namespace, is invalid")
    of_daemonset = any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references or ())
    return CreatedPod(
        uid=request.uid,
        key=f"{request.namespace}/{name}",
        may_need_node=not (request.dry_run or of_daemonset or pod.spec.node_name or pod.spec.scheduling_gates),
    )


def allowed(pod: CreatedPod) -> str:
    """The review that allows the pod, as JSON."""
    response = {"uid": pod.uid, "allowed": True}
    return msgspec.json.encode({"apiVersion": _API_VERSION, "kind": _KIND, "response": response}).decode()
