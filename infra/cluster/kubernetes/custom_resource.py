"""What the functions of custom resources share: the answer to CloudFormation, and requests to the cluster.

Like the modules that use it, it needs nothing but what Lambda's runtime has, and ``shared/cluster/eks_token.py``.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import boto3

from shared.cluster.eks_token import presign

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    T = TypeVar("T")

CLUSTER_VARIABLE = "CLUSTER"
TIMEOUT_SECONDS = 10
_ATTEMPTS, _RETRY_SECONDS = 10, 6
_MAX_REASON = 1000

Json = dict[str, Any]


def answer(event: Mapping[str, Any], *, reason: str = "", data: Mapping[str, str] | None = None) -> None:
    """Answer CloudFormation's request; it failed if there is a ``reason``. Nobody can read ``data`` in the stack."""
    body = {
        "Status": "FAILED" if reason else "SUCCESS",
        "Reason": reason[:_MAX_REASON],
        "PhysicalResourceId": event.get("PhysicalResourceId") or event["LogicalResourceId"],
        **{key: event[key] for key in ("StackId", "RequestId", "LogicalResourceId")},
        **({"NoEcho": True, "Data": dict(data)} if data else {}),
    }
    request = urllib.request.Request(
        event["ResponseURL"], data=json.dumps(body).encode(), method="PUT", headers={"Content-Type": ""}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
        pass


class ApiServer:
    """The cluster's API server, for requests with this token; ``authority`` is PEM."""

    def __init__(self, endpoint: str, authority: str, token: str) -> None:
        self._endpoint = endpoint
        self._token = token
        self._trusted = ssl.create_default_context(cadata=authority)
        # Python 3.13 sets it; authorities of clusters made by Kubernetes 1.16 and older lack the extensions it demands.
        self._trusted.verify_flags &= ~ssl.VERIFY_X509_STRICT

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, content_type: str = "application/json"
    ) -> Json:
        """The object that it answers with.

        Raises:
            OSError: the API server can't be reached, or refuses the request (HTTPError).
        """
        request = urllib.request.Request(
            f"{self._endpoint}{path}",
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={
                "Authorization": f"Bearer {self._token}",
                "Accept": "application/json",
                "Content-Type": content_type,
            },
        )
        with urllib.request.urlopen(request, context=self._trusted, timeout=TIMEOUT_SECONDS) as response:
            answered: Json = json.load(response)
        return answered


def connect(cluster: str) -> tuple[ApiServer, Json]:
    """The cluster's API server, and EKS's description of the cluster.

    Raises:
        ClientError: EKS denies or throttles the call, or there is no such cluster.
    """
    session = boto3.Session()
    description: Json = dict(session.client("eks").describe_cluster(name=cluster)["cluster"])
    credentials = session.get_credentials()
    assert credentials is not None
    token = presign(credentials.get_frozen_credentials(), region=session.region_name, cluster=cluster)
    authority = base64.b64decode(description["certificateAuthority"]["data"]).decode()
    return ApiServer(description["endpoint"], authority, token), description


def once_access_is_known(call: Callable[[], T]) -> T:
    """What ``call`` returns; EKS needs some seconds until a new access entry counts."""
    for _ in range(_ATTEMPTS):
        try:
            return call()
        except urllib.error.HTTPError as error:
            if error.code not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                raise
        time.sleep(_RETRY_SECONDS)
    return call()
