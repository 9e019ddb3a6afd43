"""Built-in kinds are decoded by their published schemas, as a real server decodes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver.api import Api
from local.kubernetes.apiserver.auth import ADMIN
from local.kubernetes.apiserver.http import Request
from local.kubernetes.errors import ApiError

if TYPE_CHECKING:
    from local.kubernetes.apiserver.http import Response
    from local.kubernetes.registry.store import Store

PODS = "/api/v1/namespaces/default/pods"


def pod(**spec: object) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "web:1"}], **spec}}


def sent(store: Store, obj: object, **query: str) -> Response:
    api = Api(store, authenticate=lambda _: ADMIN)
    headers = {"content-type": "application/json"}
    return api.respond(Request("POST", PODS, query, headers, json.dumps(obj).encode()))


def test_unknown_fields_and_nulls_are_dropped(store: Store) -> None:
    created = store.create(
        kinds.PODS, pod(nodeSelectors={"a": "b"}, priority=None, hostAliases=[{"ip": "::1", "x": 1}])
    )

    assert "nodeSelectors" not in created["spec"]
    assert created["spec"]["priority"] == 0
    assert created["spec"]["hostAliases"] == [{"ip": "::1"}]


def test_strict_validation_names_every_unknown_field(store: Store) -> None:
    body = pod(nodeSelectors={}, volumes=[{"name": "v", "emptydir": {}}])

    refused = sent(store, body, fieldValidation="Strict")

    assert refused.status == 400
    assert b'strict decoding error: unknown field \\"spec.nodeSelectors\\"' in refused.body
    assert b'unknown field \\"spec.volumes[0].emptydir\\"' in refused.body
    assert sent(store, body).status == 201


@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": "true"},
        {"terminationGracePeriodSeconds": 1.5},
        {"activeDeadlineSeconds": 2**63},
        {"priority": 2**31},
        {"nodeSelector": {"a": 1}},
        {"nodeSelector": []},
        {"tolerations": [{"key": ["a"]}]},
        {"overhead": {"cpu": "1 core"}},
        {"volumes": {"name": "v"}},
    ],
)
def test_a_value_of_another_type_is_refused_before_anything_is_looked_at(store: Store, spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as error:
        store.create(kinds.PODS, pod(**spec))

    assert (error.value.status, error.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("sent_as", "stored"), [("0.5", "500m"), ("1e3", "1e3"), (2, "2"), ("1500u", "2m"), ("1024Ki", "1Mi")]
)
def test_quantities_are_canonical_and_not_finer_than_thousandths(store: Store, sent_as: object, stored: str) -> None:
    resources = {"requests": {"cpu": sent_as}}
    created = store.create(kinds.PODS, pod(initContainers=[{"name": "i", "image": "i:1", "resources": resources}]))

    assert created["spec"]["initContainers"][0]["resources"]["requests"] == {"cpu": stored}


def test_times_are_written_in_utc(store: Store) -> None:
    node = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "2026-11-21T08:00:00.25+01:00"}]},
    }

    created = store.create(kinds.NODES, node)

    assert created["spec"]["taints"][0]["timeAdded"] == "2026-11-21T07:00:00Z"
