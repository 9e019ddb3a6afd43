"""Waits until the cluster knows the access entry of the function that applies objects.

EKS tells its API servers of a new access entry and its policy some seconds later ("Access entries",
docs.aws.amazon.com/eks/latest/userguide/access-entries.html), and the CDK's kubectl function doesn't try again what was
unauthorized: the first deployment would be rolled back. So a custom resource runs this function before the first object
is applied. It has the kubectl function's role, because only whoever has the entry sees whether it counts, and reads one
object that only an administrator may.

The function is this module, ``custom_resource.py`` and ``shared/cluster/eks_token.py`` alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from infra.cluster.kubernetes import custom_resource

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADMINISTRATORS_ONLY = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?limit=1"


def handle(event: Mapping[str, Any], _context: object) -> None:
    """CloudFormation's request of a custom resource: the answer is sent to its ``ResponseURL``."""
    reason = ""
    if event["RequestType"] != "Delete":
        try:
            wait(os.environ[custom_resource.CLUSTER_VARIABLE])
        except Exception as error:  # noqa: BLE001 (without an answer CloudFormation waits for an hour)
            reason = f"The cluster doesn't let the deployment's role in ({type(error).__name__}: {error})"
            reason += ". Deploy with -c clusterSide=printed to apply its objects yourself"
    custom_resource.answer(event, reason=reason)


def wait(cluster: str) -> None:
    """Return once the cluster takes the function for an administrator.

    Raises:
        OSError: the API server can't be reached, or still denies the request after a minute.
        ClientError: EKS denies or throttles the call.
    """
    server, _ = custom_resource.connect(cluster)
    custom_resource.once_access_is_known(lambda: server.request("GET", _ADMINISTRATORS_ONLY))
