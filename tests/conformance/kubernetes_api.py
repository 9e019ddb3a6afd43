"""What a Kubernetes API must do for Tenon: 31 checks by the official client against any API server.

    python tests/conformance/kubernetes_api.py URL [TOKEN]

Prints a line per check, then "N passed, M failed"; exits 1 if any failed. A real kube-apiserver 1.36.2 passes 30: the
watch from an expired version needs an etcd compaction there. The embedded API server must pass all 31.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import urllib3
from kubernetes import client, dynamic, watch
from kubernetes.client.rest import ApiException

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "default"
_ERRORS = range(400, 600)


class Server:
    """The API server under test, through the typed clients of the official package."""

    def __init__(self, url: str, token: str) -> None:
        configuration = client.Configuration()
        configuration.host = url
        configuration.verify_ssl = False
        if token:
            configuration.api_key = {"authorization": token}
            configuration.api_key_prefix = {"authorization": "Bearer"}
        self.url = url
        self.token = token
        self.api = client.ApiClient(configuration)
        self.core = client.CoreV1Api(self.api)
        self.policy = client.PolicyV1Api(self.api)
        self.custom = client.CustomObjectsApi(self.api)
        self.extensions = client.ApiextensionsV1Api(self.api)
        self.coordination = client.CoordinationV1Api(self.api)

    def call(self, method: str, path: str, headers: dict[str, str], body: object = None) -> dict[str, Any]:
        """One request without the typed client; raises ApiException as that does."""
        response = self.api.call_api(
            method, self.url + path, header_params={"authorization": f"Bearer {self.token}", **headers}, body=body
        )
        response.read()
        if response.status in _ERRORS:
            raise ApiException(status=response.status, body=response.data)
        parsed: dict[str, Any] = json.loads(response.data)
        return parsed

    def patch_pod(self, content_type: str, body: object, query: str = "") -> dict[str, Any]:
        """Patch pod "a" with a body of that content type."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/a{query}"
        return self.call("PATCH", path, {"Content-Type": content_type, "Accept": "application/json"}, body)

    def delete_pod(self, name: str) -> None:
        """Delete a pod without a grace period."""
        self.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)

    def evict_pod(self, name: str) -> None:
        """Ask for a pod's eviction."""
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": NAMESPACE},
        }
        self.core.create_namespaced_pod_eviction(name, NAMESPACE, eviction)

    def watch_pods(
        self, version: str, change: Callable[[], None], *, most: int, seconds: int, selector: str = ""
    ) -> list[tuple[str, str]]:
        """The (type, name) of the first events of a watch, while ``change`` runs."""
        events: list[tuple[str, str]] = []
        threading.Timer(0.4, change).start()
        stream = watch.Watch().stream(
            self.core.list_namespaced_pod,
            NAMESPACE,
            resource_version=version,
            label_selector=selector,
            timeout_seconds=seconds,
            _request_timeout=seconds + 2,
        )
        for event in stream:
            events.append((event["type"], event["object"].metadata.name))
            if len(events) >= most:
                break
        return events

    def version(self) -> str:
        """The resourceVersion of the list of pods."""
        version: str = self.core.list_namespaced_pod(NAMESPACE).metadata.resource_version
        return version


Check = tuple[str, "Callable[[Server], bool]"]
CHECKS: list[Check] = []


def check(title: str) -> Callable[[Callable[[Server], bool]], Callable[[Server], bool]]:
    """Register a check under its title; they run in the order in which they are written."""

    def register(function: Callable[[Server], bool]) -> Callable[[Server], bool]:
        CHECKS.append((title, function))
        return function

    return register


def pod(name: str, **metadata: object) -> dict[str, Any]:
    """A pod with one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }


def status(call: Callable[..., object], *arguments: object, **options: object) -> int:
    """The HTTP status that a call ends with; 200 if it succeeds."""
    try:
        call(*arguments, **options)
    except ApiException as error:
        return int(error.status)
    return 200


def reason(call: Callable[..., object], *arguments: object) -> tuple[int, str]:
    """The HTTP status and the reason of the Status object that a call is refused with."""
    try:
        call(*arguments)
    except ApiException as error:
        return int(error.status), str(json.loads(error.body)["reason"])
    return 200, ""


@check("create typed pod; uid, resourceVersion, creationTimestamp set")
def _(server: Server) -> bool:
    typed = client.V1Pod(
        metadata=client.V1ObjectMeta(name="a", labels={"app": "x", "tier": "1"}),
        spec=client.V1PodSpec(containers=[client.V1Container(name="c", image="x")]),
    )
    metadata = server.core.create_namespaced_pod(NAMESPACE, typed).metadata
    return bool(metadata.uid and metadata.resource_version and metadata.creation_timestamp)


@check("generateName")
def _(server: Server) -> bool:
    body = pod("ignored")
    body["metadata"] = {"generateName": "g-"}
    name: str = server.core.create_namespaced_pod(NAMESPACE, body).metadata.name
    server.delete_pod(name)
    return name.startswith("g-") and len(name) > len("g-")


@check("create duplicate -> 409 AlreadyExists")
def _(server: Server) -> bool:
    server.core.create_namespaced_pod(NAMESPACE, pod("b", labels={"app": "y"}))
    return reason(server.core.create_namespaced_pod, NAMESPACE, pod("b")) == (409, "AlreadyExists")


@check("get typed")
def _(server: Server) -> bool:
    return bool(server.core.read_namespaced_pod("a", NAMESPACE).metadata.labels["app"] == "x")


@check("get missing -> 404 NotFound")
def _(server: Server) -> bool:
    return reason(server.core.read_namespaced_pod, "nope", NAMESPACE) == (404, "NotFound")


@check("list: kind PodList, numeric metadata.resourceVersion")
def _(server: Server) -> bool:
    raw = json.loads(server.core.list_namespaced_pod(NAMESPACE, _preload_content=False).data)
    return bool(raw.get("kind") == "PodList" and raw["metadata"]["resourceVersion"].isdigit())


@check("list labelSelector: equality")
def _(server: Server) -> bool:
    return [p.metadata.name for p in server.core.list_pod_for_all_namespaces(label_selector="app=x").items] == ["a"]


@check("list labelSelector: in, notin, !")
def _(server: Server) -> bool:
    def names(selector: str) -> list[str]:
        pods = server.core.list_namespaced_pod(NAMESPACE, label_selector=selector).items
        return sorted(p.metadata.name for p in pods)

    return names("app in (x,y),!zone") == ["a", "b"] and names("app notin (x),tier") == []


@check("list fieldSelector: spec.nodeName, metadata.name")
def _(server: Server) -> bool:
    on_node = server.core.list_pod_for_all_namespaces(field_selector="spec.nodeName=nX").items
    named = server.core.list_namespaced_pod(NAMESPACE, field_selector="metadata.name=a").items
    return on_node == [] and [p.metadata.name for p in named] == ["a"]


@check("list limit and continue")
def _(server: Server) -> bool:
    first = server.core.list_namespaced_pod(NAMESPACE, limit=1)
    second = server.core.list_namespaced_pod(NAMESPACE, limit=1, _continue=first.metadata._continue)
    return (
        len(first.items) == 1
        and bool(first.metadata._continue)
        and second.items[0].metadata.name != first.items[0].metadata.name
    )


@check("patch: merge patch, null deletes a key")
def _(server: Server) -> bool:
    patched = server.patch_pod("application/merge-patch+json", {"metadata": {"labels": {"tier": None, "new": "1"}}})
    return bool(patched["metadata"]["labels"] == {"app": "x", "new": "1"})


@check("patch: strategic merge, containers by name")
def _(server: Server) -> bool:
    kind = "application/strategic-merge-patch+json"
    toleration = {"key": "k1", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}
    server.patch_pod(kind, {"spec": {"tolerations": [toleration]}})
    patched = server.patch_pod(kind, {"spec": {"containers": [{"name": "c", "image": "y"}]}})
    containers = patched["spec"]["containers"]
    return [(c.get("name"), c["image"]) for c in containers] == [("c", "y")]


@check("patch: JSON patch")
def _(server: Server) -> bool:
    operation = {"op": "add", "path": "/metadata/labels/jp", "value": "1"}
    return bool(server.patch_pod("application/json-patch+json", [operation])["metadata"]["labels"].get("jp") == "1")


@check("patch: server-side apply sets managedFields")
def _(server: Server) -> bool:
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"ssa": "1"}}}
    patched = server.patch_pod("application/apply-patch+yaml", applied, "?fieldManager=me&force=true")
    managers = [entry["manager"] for entry in patched["metadata"].get("managedFields", [])]
    return patched["metadata"]["labels"].get("ssa") == "1" and "me" in managers


@check("replace with a stale resourceVersion -> 409")
def _(server: Server) -> bool:
    stale = server.core.read_namespaced_pod("a", NAMESPACE)
    server.core.patch_namespaced_pod("a", NAMESPACE, {"metadata": {"labels": {"z": "1"}}})
    stale.metadata.labels["z"] = "2"
    return status(server.core.replace_namespaced_pod, "a", NAMESPACE, stale) == 409


@check("patch with a stale resourceVersion -> 409")
def _(server: Server) -> bool:
    stale = {"metadata": {"resourceVersion": "1", "labels": {"z": "3"}}}
    return status(server.core.patch_namespaced_pod, "a", NAMESPACE, stale) == 409


@check("the status subresource is separate: spec ignored on /status, status ignored on the object")
def _(server: Server) -> bool:
    server.core.patch_namespaced_pod_status("a", NAMESPACE, {"status": {"phase": "Running"}})
    server.core.patch_namespaced_pod("a", NAMESPACE, {"status": {"phase": "Failed"}})
    read = server.core.read_namespaced_pod("a", NAMESPACE)
    return bool(read.status and read.status.phase == "Running")


@check("delete with a precondition that does not hold -> 409")
def _(server: Server) -> bool:
    precondition = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    return status(server.core.delete_namespaced_pod, "b", NAMESPACE, body=precondition) == 409


@check("finalizer: delete sets deletionTimestamp, removing the finalizer deletes")
def _(server: Server) -> bool:
    server.core.create_namespaced_pod(NAMESPACE, pod("fin", finalizers=["x.io/f"]))
    server.delete_pod("fin")
    deleting = server.core.read_namespaced_pod("fin", NAMESPACE).metadata.deletion_timestamp
    server.core.patch_namespaced_pod("fin", NAMESPACE, {"metadata": {"finalizers": None}})
    return bool(deleting) and status(server.core.read_namespaced_pod, "fin", NAMESPACE) == 404


@check("eviction -> 201 and the pod is deleted")
def _(server: Server) -> bool:
    server.core.create_namespaced_pod(NAMESPACE, pod("e", labels={"pdb": "1"}))
    server.evict_pod("e")
    if status(server.core.read_namespaced_pod, "e", NAMESPACE) == 404:
        return True
    return server.core.read_namespaced_pod("e", NAMESPACE).metadata.deletion_timestamp is not None


@check("eviction blocked by a PodDisruptionBudget -> 429")
def _(server: Server) -> bool:
    with contextlib.suppress(ApiException):
        server.delete_pod("e")
    server.core.create_namespaced_pod(NAMESPACE, pod("e", labels={"pdb": "1"}))
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    server.core.patch_namespaced_pod_status("e", NAMESPACE, ready)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "k"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"pdb": "1"}}},
    }
    server.policy.create_namespaced_pod_disruption_budget(NAMESPACE, budget)
    _wait_for(lambda: _observed(server))
    answer = status(server.evict_pod, "e")
    server.policy.delete_namespaced_pod_disruption_budget("k", NAMESPACE)
    return answer == 429


def _observed(server: Server) -> bool:
    """Whether the controller has looked at the budget."""
    state = server.policy.read_namespaced_pod_disruption_budget("k", NAMESPACE).status
    return bool(state is not None and state.observed_generation)


def _wait_for(condition: Callable[[], bool]) -> None:
    """Poll for up to ten seconds; what is checked afterwards says whether it came."""
    until = time.monotonic() + 10
    while time.monotonic() < until and not condition():
        time.sleep(0.05)


@check("watch from a list's resourceVersion: only later events, ADDED to DELETED")
def _(server: Server) -> bool:
    def change() -> None:
        server.core.create_namespaced_pod(NAMESPACE, pod("w"))
        server.core.patch_namespaced_pod("w", NAMESPACE, {"metadata": {"labels": {"q": "1"}}})
        server.delete_pod("w")

    events = server.watch_pods(server.version(), change, most=9, seconds=3)
    return events[:1] == [("ADDED", "w")] and events[-1][0] == "DELETED"


@check("watch timeoutSeconds closes the stream")
def _(server: Server) -> bool:
    version = server.version()
    started = time.monotonic()
    events = server.watch_pods(version, lambda: None, most=9, seconds=2)
    return 1.5 < time.monotonic() - started < 3.5 and not events


@check("watch with labelSelector")
def _(server: Server) -> bool:
    def change() -> None:
        server.core.create_namespaced_pod(NAMESPACE, pod("w1"))
        server.core.create_namespaced_pod(NAMESPACE, pod("w2", labels={"app": "sel"}))
        server.delete_pod("w1")
        server.delete_pod("w2")

    events = server.watch_pods(server.version(), change, most=1, seconds=4, selector="app=sel")
    _wait_for(lambda: status(server.core.read_namespaced_pod, "w2", NAMESPACE) == 404)
    return events == [("ADDED", "w2")]


@check("watch from an expired resourceVersion -> 410 (a real server needs an etcd compaction first)")
def _(server: Server) -> bool:
    try:
        server.watch_pods("1", lambda: None, most=99, seconds=2)
    except ApiException as error:
        return int(error.status) == 410
    return False


_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "tests.ex.io"},
    "spec": {
        "group": "ex.io",
        "scope": "Cluster",
        "names": {"plural": "tests", "singular": "test", "kind": "Test"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"w": {"type": "integer", "maximum": 9}}},
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
_TESTS = ("ex.io", "v1", "tests")


def _test(name: str, w: int) -> dict[str, Any]:
    return {"apiVersion": "ex.io/v1", "kind": "Test", "metadata": {"name": name}, "spec": {"w": w}}


@check("CustomResourceDefinition: served once created; schema validation -> 422")
def _(server: Server) -> bool:
    with contextlib.suppress(ApiException):
        server.extensions.delete_custom_resource_definition("tests.ex.io")
        _wait_for(lambda: status(server.extensions.read_custom_resource_definition, "tests.ex.io") == 404)
    server.extensions.create_custom_resource_definition(_DEFINITION)
    _wait_for(lambda: status(server.custom.list_cluster_custom_object, *_TESTS) == 200)
    server.custom.create_cluster_custom_object(*_TESTS, _test("t", 1))
    return status(server.custom.create_cluster_custom_object, *_TESTS, _test("u", 99)) == 422


@check("custom objects: list, merge patch of status, generation grows with the spec alone")
def _(server: Server) -> bool:
    listed = server.custom.list_cluster_custom_object(*_TESTS)
    with_status = server.custom.patch_cluster_custom_object_status(*_TESTS, "t", {"status": {"a": 1}})
    with_spec = server.custom.patch_cluster_custom_object(*_TESTS, "t", {"spec": {"w": 2}})
    return bool(
        listed.get("kind") == "TestList"
        and with_status["metadata"].get("generation") == 1
        and with_spec["metadata"].get("generation") == 2
        and with_spec["status"] == {"a": 1}
    )


@check("node: typed create, patch of spec.taints, status.allocatable")
def _(server: Server) -> bool:
    if status(server.core.read_node, "kn") == 200:
        server.core.delete_node("kn")
    server.core.create_node({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "kn"}})
    server.core.patch_node_status("kn", {"status": {"allocatable": {"cpu": "2"}}})
    server.core.patch_node("kn", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
    node = server.core.read_node("kn")
    server.core.delete_node("kn")
    return node.status.allocatable == {"cpu": "2"} and any(taint.key == "a" for taint in node.spec.taints)


@check("metadata only: PartialObjectMetadataList")
def _(server: Server) -> bool:
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    listed = server.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods", {"Accept": accept})
    return bool(listed["kind"] == "PartialObjectMetadataList")


@check("DynamicClient: discovery and get")
def _(server: Server) -> bool:
    pods = dynamic.DynamicClient(server.api).resources.get(api_version="v1", kind="Pod")
    return bool(pods.get(name="a", namespace=NAMESPACE).metadata.name == "a")


@check("Lease: create, replace, conflict")
def _(server: Server) -> bool:
    leases = server.coordination
    if status(leases.read_namespaced_lease, "l", NAMESPACE) == 200:
        leases.delete_namespaced_lease("l", NAMESPACE)
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a"},
    }
    stale = leases.create_namespaced_lease(NAMESPACE, lease)
    current = leases.read_namespaced_lease("l", NAMESPACE)
    current.spec.holder_identity = "b"
    leases.replace_namespaced_lease("l", NAMESPACE, current)
    stale.spec.holder_identity = "c"
    return status(leases.replace_namespaced_lease, "l", NAMESPACE, stale) == 409


def clean(server: Server) -> None:
    """Remove what an earlier run left."""
    for name in ("a", "b", "e", "fin"):
        with contextlib.suppress(ApiException):
            server.core.patch_namespaced_pod(name, NAMESPACE, {"metadata": {"finalizers": None}})
        with contextlib.suppress(ApiException):
            server.delete_pod(name)


def run(server: Server) -> list[tuple[str, str]]:
    """Each check's title and, if it failed, why ("" if it passed)."""
    results: list[tuple[str, str]] = []
    for title, function in CHECKS:
        try:
            why = "" if function(server) else "not as expected"
        except Exception as error:  # noqa: BLE001 (a check that fails in any way must not stop the others)
            why = f"{type(error).__name__}: {str(error)[:200]}"
        results.append((title, why))
        print(f"{'FAIL' if why else 'PASS'} {title}{'   # ' + why if why else ''}", flush=True)  # noqa: T201 (its output)
    return results


def main(url: str, token: str = "") -> int:
    """Run all checks; the exit code."""
    urllib3.disable_warnings()
    server = Server(url, token)
    clean(server)
    failed = [title for title, why in run(server) if why]
    print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")  # noqa: T201 (its output)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
