"""A deployment of a custom resource: the cluster that its function reads or changes, and where its answers go."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import boto3
from moto import mock_aws

from infra.cluster.kubernetes import cluster_manifests, custom_resource
from local.aws import backends
from local.kubernetes.apiserver.auth import User
from local.kubernetes.apiserver.rbac import Rbac
from local.kubernetes.apiserver.server import Server
from local.kubernetes.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pytest

LOGICAL_ID = "Resource"


@dataclass
class Deployment:
    """A cluster's API server, and the answers that CloudFormation gets from the function ``handle``."""

    server: Server
    handle: Callable[[Mapping[str, Any], object], None]
    response_url: str
    answers: list[dict[str, Any]]

    def request(self, kind: str, type_: str, **properties: Any) -> dict[str, Any]:
        """CloudFormation's request and the answer to it."""
        event = {
            "RequestType": kind,
            "ResourceType": type_,
            "ResponseURL": self.response_url,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": LOGICAL_ID,
            "ResourceProperties": properties,
        }
        self.handle(event, None)
        return self.answers[-1]


@contextlib.contextmanager
def deployment(
    monkeypatch: pytest.MonkeyPatch,
    handle: Callable[[Mapping[str, Any], object], None],
    *,
    access: Sequence[dict[str, Any]],
    group: str,
) -> Iterator[Deployment]:
    """The cluster's server and EKS know this ``access``, and the function by its group (deployment_access.py)."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv(custom_resource.CLUSTER_VARIABLE, "demo")
    monkeypatch.setattr(custom_resource, "_RETRY_SECONDS", 0)
    store = Store(now=lambda: datetime.now(UTC))
    for obj in access:
        store.create(store.kind(obj["apiVersion"], obj["kind"]), obj)
    user = User(group, (cluster_manifests.group(group), "system:authenticated"))

    def authenticate(token: str | None) -> User | None:
        return user if token and token.startswith("k8s-aws-v1.") else None

    answers: list[dict[str, Any]] = []

    class CloudFormation(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    with (
        mock_aws(),
        Server(store, authenticate=authenticate, authorize=Rbac(store)) as server,
        HTTPServer(("127.0.0.1", 0), CloudFormation) as cloudformation,
    ):
        boto3.client("eks").create_cluster(
            name="demo", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig={"subnetIds": ["subnet-1"]}
        )
        cluster = backends.eks("us-east-1").clusters["demo"]
        cluster.endpoint = server.url
        cluster.certificate_authority = {"data": base64.b64encode(server.ca_pem.encode()).decode()}
        threading.Thread(target=cloudformation.serve_forever, daemon=True).start()
        try:
            yield Deployment(server, handle, f"http://127.0.0.1:{cloudformation.server_port}/answer", answers)
        finally:
            cloudformation.shutdown()
