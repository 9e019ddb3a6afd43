"""kubectl works on the embedded API as on a real cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver.server import ADMIN_TOKEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from local.kubernetes.objects import Change
    from tests.local.kubernetes_api.conftest import Cluster

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed on this machine")

Kubectl = "Callable[..., str]"

_DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "web:1"}, {name: side, image: "side:1"}]}
"""
_WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Weight, type: integer, jsonPath: .spec.weight}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {weight: {type: integer, maximum: 9}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
_WIDGET = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {weight: 3}\n"


@pytest.fixture
def kubectl(cluster: Cluster, tmp_path: Path) -> Callable[..., str]:
    config = tmp_path / "kubeconfig"
    config.write_text(cluster.server.kubeconfig())
    environ = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path)}

    def run(*arguments: str, stdin: str = "", fails: bool = False) -> str:
        ran = subprocess.run(
            ["kubectl", *arguments], input=stdin, capture_output=True, text=True, env=environ, timeout=60, check=False
        )
        assert (ran.returncode != 0) == fails, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    return run


def test_apply_creates_leaves_alone_and_changes(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    assert "created" in kubectl("apply", "-f", "-", stdin=_DEPLOYMENT)
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=_DEPLOYMENT)
    kubectl(
        "apply", "-f", "-", stdin=_DEPLOYMENT.replace("web:1", "web:2").replace(', {name: side, image: "side:1"}', "")
    )
    containers = cluster.store.get(kinds.DEPLOYMENTS, "web", namespace="default")["spec"]["template"]["spec"][
        "containers"
    ]
    assert [(container["name"], container["image"]) for container in containers] == [("main", "web:2")]


def test_custom_kinds_are_applied_validated_and_printed(kubectl: Callable[..., str]) -> None:
    kubectl("apply", "-f", "-", stdin=_WIDGETS)
    assert "created" in kubectl("apply", "-f", "-", stdin=_WIDGET)
    output = kubectl("apply", "-f", "-", stdin=_WIDGET.replace("3", "10"), fails=True)
    assert "spec.weight in body should be less than or equal to 9" in output
    output = kubectl("apply", "-f", "-", stdin=_WIDGET.replace("weight", "wieght"), fails=True)
    assert 'unknown field "spec.wieght"' in output
    assert kubectl("get", "wd").split()[:8] == ["NAME", "WEIGHT", "READY", "w", "3"]
    assert "weight" in kubectl("explain", "widget.spec")


def test_objects_are_sorted_by_a_field_of_theirs(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    for number, second in ((1, 30), (2, 10), (3, 20)):
        involved = {"kind": "Pod", "name": f"pod-{number}", "namespace": "default"}
        at = f"2026-01-01T00:00:{second}Z"
        event = {"metadata": {"name": f"e{number}"}, "involvedObject": involved, "lastTimestamp": at, "reason": "R"}
        cluster.store.create(kinds.EVENTS, event, namespace="default")
    shown = kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()
    assert [line.split()[-1] for line in shown[1:]] == ["pod/pod-2", "pod/pod-3", "pod/pod-1"]
    assert "pod/pod-2" in kubectl("get", "event", "e2", "--sort-by=.lastTimestamp")
    for name, node in (("x", "n2"), ("y", "n1")):
        cluster.pod(name, node=node)
    pods = kubectl("get", "pods", "--sort-by={.spec.nodeName}").splitlines()
    assert [line.split()[0] for line in pods[1:]] == ["y", "x"]


def test_rows_have_as_much_of_objects_as_is_asked_for(cluster: Cluster) -> None:
    cluster.pod("a", node="n1")

    def first_row(include: str) -> Any:
        path = f"/api/v1/namespaces/default/pods?includeObject={include}"
        headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
        url = cluster.server.url + path
        return cluster.client.rest_client.pool_manager.request(
            "GET", url, headers={**headers, "Authorization": f"Bearer {ADMIN_TOKEN}"}
        ).json()

    assert first_row("None")["rows"][0]["object"] is None
    assert set(first_row("Metadata")["rows"][0]["object"]) == {"kind", "apiVersion", "metadata"}
    assert first_row("Object")["rows"][0]["object"]["spec"]["nodeName"] == "n1"
    refused = first_row("All")
    assert (refused["reason"], refused["message"]) == ("BadRequest", 'unrecognized includeObject value: "All"')


def test_get_prints_the_usual_columns(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    cluster.store.create(kinds.NODES, {"metadata": {"name": "n1"}})
    cluster.pod("a", node="n1")
    assert kubectl("get", "pods", "-o", "wide").splitlines()[0].split()[:5] == [
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
    ]
    assert "n1" in kubectl("get", "pods,nodes", "-A", "-o", "wide")
    assert json.loads(kubectl("get", "pods", "-o", "json"))["items"][0]["kind"] == "Pod"
    assert "Node:             n1" in kubectl("describe", "pod", "a")
    assert "default" in kubectl("describe", "node", "n1")


def test_scale_patch_label_annotate_and_taint(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    kubectl("apply", "-f", "-", stdin=_DEPLOYMENT)
    kubectl("scale", "deployment", "web", "--replicas=5")
    kubectl("patch", "deployment", "web", "-p", '{"spec":{"paused":true}}')
    deployment = cluster.store.get(kinds.DEPLOYMENTS, "web", namespace="default")
    assert (deployment["spec"]["replicas"], deployment["spec"]["paused"]) == (5, True)
    cluster.store.create(kinds.NODES, {"metadata": {"name": "n1"}})
    kubectl("label", "node", "n1", "a=b")
    kubectl("annotate", "node", "n1", "c=d")
    kubectl("taint", "node", "n1", "e=f:NoSchedule")
    node = cluster.store.get(kinds.NODES, "n1")
    assert node["metadata"]["labels"] == {"a": "b"}
    assert node["metadata"]["annotations"] == {"c": "d"}
    assert {"key": "e", "value": "f", "effect": "NoSchedule"} in node["spec"]["taints"]


def test_drain_cordons_the_node_and_evicts_its_pods(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    cluster.store.create(kinds.NODES, {"metadata": {"name": "n1"}})
    cluster.pod("a", node="n1")

    def confirm(change: Change) -> None:
        """A kubelet: removes terminating pods."""
        metadata = change.object["metadata"]
        if change.type == "MODIFIED" and change.kind == kinds.PODS and metadata.get("deletionGracePeriodSeconds"):
            end = {"namespace": "default", "grace_period_seconds": 0}
            threading.Thread(target=cluster.store.delete, args=(kinds.PODS, metadata["name"]), kwargs=end).start()

    cluster.store.subscribe(confirm)
    assert "node/n1 drained" in kubectl("drain", "n1", "--force", "--timeout=30s")
    assert cluster.store.get(kinds.NODES, "n1")["spec"]["unschedulable"] is True
    assert cluster.store.list(kinds.PODS) == []
    assert "SchedulingDisabled" in kubectl("get", "nodes")


def test_delete_waits_until_the_object_is_gone(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    cluster.pod("a")
    assert 'pod "a" deleted' in kubectl("delete", "pod", "a")
    assert "No resources found" in kubectl("get", "pods")


def test_objects_that_kubectl_sends_as_protobuf_are_decoded(cluster: Cluster, kubectl: Callable[..., str]) -> None:
    kubectl("create", "namespace", "team")
    assert cluster.store.get(kinds.NAMESPACES, "team")["status"] == {"phase": "Active"}
    kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3", "-n", "team")
    deployment = cluster.store.get(kinds.DEPLOYMENTS, "web", namespace="team")
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["selector"] == {"matchLabels": {"app": "web"}}
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "web:1"
    assert kubectl("auth", "can-i", "delete", "pods").strip() == "yes"
