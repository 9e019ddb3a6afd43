"""In which priority level a real API server handles the requests of the functions, by its response headers."""

from __future__ import annotations

import json
import ssl
import time
from http.client import HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from infra import function_sizes
from infra.cluster.kubernetes import flow_schemas
from local.real.control_plane import ControlPlane

if TYPE_CHECKING:
    from pathlib import Path

_PATH = "/apis/flowcontrol.apiserver.k8s.io/v1"
_HEADER = "X-Kubernetes-PF-PriorityLevel-UID"
GROUP, RELAY_POD = "tenon:provisioner", "system:serviceaccount:tenon:tenon-relay"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"


def level_uid(control_plane: ControlPlane, path: str, **impersonated: str) -> str:
    """The priority level of a request; that RBAC refuses it is of no matter."""
    headers = {"Authorization": f"Bearer {control_plane.admin_token}"}
    headers.update({f"Impersonate-{name.capitalize()}": value for name, value in impersonated.items()})
    trusted = ssl.create_default_context(cadata=control_plane.certificate_authority)
    connection = HTTPSConnection(urlsplit(control_plane.url).netloc, context=trusted, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().headers[_HEADER]
    finally:
        connection.close()


def test_functions_and_relay_are_handled_before_other_users(kubeconfig: Path | None, kubernetes: str) -> None:
    if kubeconfig is not None:
        pytest.skip("it asks the control plane that Go builds")
    with ControlPlane(kubernetes=kubernetes) as control_plane:
        client = control_plane.client()
        try:
            for schema in flow_schemas.flow_schemas(function_sizes.ALL, relay_pod=True):
                client.create(f"{_PATH}/flowschemas", schema)
            levels: dict[str, str] = {
                level["metadata"]["uid"]: level["metadata"]["name"]
                for level in json.loads(client.get(f"{_PATH}/prioritylevelconfigurations"))["items"]
            }

            def level(path: str, **impersonated: str) -> str:
                return levels[level_uid(control_plane, path, **impersonated)]

            end = time.monotonic() + 30
            while level("/api/v1/pods", user="p", group=GROUP) != "workload-high" and time.monotonic() < end:
                time.sleep(0.5)
            assert level("/api/v1/pods", user="p", group=GROUP) == "workload-high"
            assert level("/apis/karpenter.sh/v1/nodeclaims", user="p", group=GROUP) == "workload-high"
            assert level(f"{LEASES}/tenon", user="p", group=GROUP) == "leader-election"
            assert level("/api/v1/pods", user=RELAY_POD, group="system:serviceaccounts") == "workload-high"
            assert level("/api/v1/pods", user="somebody", group="developers") == "global-default"
            for name in (flow_schemas.REQUESTS, flow_schemas.LEASES):
                stored = json.loads(client.get(f"{_PATH}/flowschemas/{name}"))
                assert [c["status"] for c in stored["status"]["conditions"] if c["type"] == "Dangling"] == ["False"]
        finally:
            client.close()
