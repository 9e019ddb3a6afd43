"""The stub of the API server counts what it is asked for, and lets minutes pass as a cluster's do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.scale.invocations import listed_twice_in, mean, replaced_a_minute
from bench.stub_api_server import StubResponses
from bench.stub_minutes import EVENTS_OF_A_REPLACEMENT
from bench.stub_requests import Requests, request_name
from shared.cluster.watched_objects import BOOKMARK_TIMEOUT

NODES, PODS = 10, 30
UNBOUND = {"fieldSelector": "spec.nodeName=,status.phase!=Failed"}


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (("GET", "/api/v1/pods", {"fieldSelector": "status.phase!=Failed"}), "list pods"),
        (("GET", "/api/v1/pods", UNBOUND), "list pods without a node"),
        (("GET", "/api/v1/pods", {"fieldSelector": "spec.nodeName=node-1"}), "list pods of a node"),
        (("GET", "/api/v1/nodes", {"fieldSelector": "metadata.name=-"}), "list nodes, none of them"),
        (("GET", "/api/v1/pods", {"watch": "true"}), "watch pods"),
        (("GET", "/api/v1/pods", {"watch": "true", "timeoutSeconds": "3"}), "watch pods, until its bookmark"),
        (("GET", "/api/v1/nodes/node-1", {}), "get nodes"),
        (("GET", "/api/v1/namespaces", {}), "list namespaces"),
        (("PATCH", "/apis/karpenter.sh/v1/nodeclaims/claim-1/status", {}), "patch nodeclaims/status"),
        (("POST", "/api/v1/namespaces/default/pods/web-1/eviction", {}), "create pods/eviction"),
        (("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/tenon", {}), "patch leases"),
    ],
)
def test_requests_are_named_by_verb_and_kind(request_: tuple[str, str, dict[str, str]], name: str) -> None:
    assert request_name(*request_) == name


def test_pages_of_one_list_are_no_second_list() -> None:
    requests = Requests()
    for query in ({}, {"continue": "500"}, {}):
        name = requests.add("GET", "/api/v1/nodes", query)
        requests.sent(name, 100)
    requests.add("GET", "/api/v1/pods", {})
    counts = requests.take()
    assert counts["list nodes"] == {"requests": 3, "first": 2, "bytes": 300}
    assert listed_twice_in(counts) == ["list nodes"]
    assert requests.take() == {}


def events(stub: StubResponses, plural: str, since: int) -> list[dict[str, Any]]:
    """What a watch of three seconds receives."""
    return [json.loads(line) for line in stub.events(plural, since, timeout=BOOKMARK_TIMEOUT)]


def version_of(stub: StubResponses, plural: str) -> int:
    page = json.loads(stub.get(f"/api/v1/{plural}", {"fieldSelector": "metadata.name=-"}))
    return int(page["metadata"]["resourceVersion"])


def test_a_watch_receives_the_minute_and_a_bookmark() -> None:
    stub = StubResponses(NODES, PODS)
    stub.pass_minute(replaced=0, pending=0)
    before = version_of(stub, "pods")
    stub.pass_minute(replaced=2, pending=3)
    unbound = json.loads(stub.get("/api/v1/pods", UNBOUND))
    seen = events(stub, "pods", before)
    assert [e["type"] for e in seen].count("ADDED") == 2 + 3
    assert [e["type"] for e in seen].count("DELETED") == 2
    assert len(seen) >= 2 * EVENTS_OF_A_REPLACEMENT + 3
    pods: dict[str, dict[str, Any]] = {}
    for event in seen:
        obj = event["object"]
        if event["type"] == "BOOKMARK":
            assert int(obj["metadata"]["resourceVersion"]) >= int(unbound["metadata"]["resourceVersion"])
        else:
            pods[obj["metadata"]["name"]] = obj
    assert [pod for pod in pods.values() if "nodeName" not in pod["spec"]] == unbound["items"]


def test_an_idle_minute_has_reports_and_no_pods() -> None:
    stub = StubResponses(NODES, PODS)
    stub.pass_minute(replaced=0, pending=0)
    before = version_of(stub, "nodes")
    stub.pass_minute(replaced=0, pending=0)
    assert [e["type"] for e in events(stub, "pods", before)] == ["BOOKMARK"]
    assert [e["type"] for e in events(stub, "nodes", before)].count("MODIFIED") >= NODES // 5


def test_a_fiftieth_of_the_pods_is_replaced_in_an_hour() -> None:
    assert replaced_a_minute(450_000) == 150


def test_means_count_what_is_missing_as_none() -> None:
    assert mean([{"requests": {"get nodes": {"bytes": 4}}}, {"requests": {}}]) == {
        "requests": {"get nodes": {"bytes": 2.0}}
    }
