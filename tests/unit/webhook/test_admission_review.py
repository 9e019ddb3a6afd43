"""The webhook reads a pod's key from a review, and refuses everything else."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from functions.webhook import admission_review
from functions.webhook.admission_review import MalformedReviewError, allowed, created_pod
from tests.unit.webhook.reviews import pod, review

DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "1", "controller": True}
REPLICAS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}


@pytest.mark.parametrize("is_base64", [False, True])
def test_a_new_pod_is_allowed_and_known_by_its_namespace_and_name(*, is_base64: bool) -> None:
    text = json.dumps(review())
    body = base64.b64encode(text.encode()).decode() if is_base64 else text
    created = created_pod(body, is_base64=is_base64)
    assert (created.key, created.may_need_node) == ("team/web-1", True)
    assert json.loads(allowed(created)) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": review()["request"]["uid"], "allowed": True},
    }


@pytest.mark.parametrize(
    ("request_", "may_need_node"),
    [
        ({"object": pod({"ownerReferences": [REPLICAS]})}, True),
        ({"object": pod({"ownerReferences": None}, {"schedulingGates": None, "nodeName": ""})}, True),
        ({"object": pod({"ownerReferences": [DAEMON]})}, False),
        ({"object": pod(spec={"nodeName": "node-1"})}, False),
        ({"object": pod(spec={"schedulingGates": [{"name": "example.com/quota"}]})}, False),
        ({"dryRun": True}, False),
    ],
)
def test_pods_that_need_no_node_give_no_hint(request_: dict[str, Any], *, may_need_node: bool) -> None:
    assert created_pod(json.dumps(review(**request_)), is_base64=False).may_need_node is may_need_node


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        "[]",
        "null",
        "\ud800",
        '{"apiVersion": "admission.k8s.io/v1"',
        '{"x": ' + "[" * 100_000,
        json.dumps(review() | {"kind": "Pod"}),
        json.dumps(review() | {"apiVersion": "admission.k8s.io/v1beta1"}),
        json.dumps(review(operation="DELETE")),
        json.dumps(review(resource={"group": "", "version": "v1", "resource": "secrets"})),
        json.dumps(review(resource={"group": "apps", "version": "v1", "resource": "pods"})),
        json.dumps(review(subResource="eviction")),
        json.dumps(review(namespace="")),
        json.dumps(review(namespace="a/b")),
        json.dumps(review(namespace="x" * 64)),
        json.dumps(review(uid="")),
        json.dumps(review(uid='"}, "allowed": false')),
        json.dumps(review(uid="x" * 65)),
        json.dumps(review(object=pod({"name": ""}))),
        json.dumps(review(object=pod({"name": "web\n1"}))),
        json.dumps(review(object=None)),
        json.dumps(review(object=[])),
        "x" * (admission_review.MAX_BYTES + 1),
    ],
)
def test_a_body_that_is_no_review_of_a_new_pod_is_refused_without_quoting_it(body: str) -> None:
    with pytest.raises(MalformedReviewError) as raised:
        created_pod(body, is_base64=False)
    assert "web" not in str(raised.value)
    assert "CONFIDENTIAL" not in str(raised.value)


@given(body=st.text(max_size=200), is_base64=st.booleans())
def test_no_text_makes_the_parser_fail(body: str, *, is_base64: bool) -> None:
    with pytest.raises(MalformedReviewError):
        created_pod(body, is_base64=is_base64)
