"""What pods count for while they are resized in place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.kubernetes import Pod
from shared.api.pods import requests
from shared.api.quantity import QuantityError


def pod(
    wanted: dict[str, Any],
    *,
    allocated: dict[str, Any] | None = None,
    actual: dict[str, Any] | None = None,
    pending: str = "",
    kind: str = "container",
) -> Pod:
    """A running pod with one container, or one sidecar, next to a container of 1 core."""
    status: dict[str, Any] = {"name": "app"}
    if allocated is not None:
        status["allocatedResources"] = allocated
    if actual is not None:
        status["resources"] = {"requests": actual}
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    app = {"name": "app", "resources": {"requests": wanted}}
    second = {"name": "second", "resources": {"requests": {"cpu": "1"}}}
    spec: dict[str, Any] = {"nodeName": "n1", "containers": [second, app]}
    statuses = {"containerStatuses": [status]}
    if kind == "sidecar":
        spec = {"nodeName": "n1", "containers": [second], "initContainers": [{**app, "restartPolicy": "Always"}]}
        statuses = {"initContainerStatuses": [status]}
    document = {"metadata": {"name": "p"}, "spec": spec, "status": {"conditions": conditions, **statuses}}
    return msgspec.json.decode(json.dumps(document), type=Pod)


@pytest.mark.parametrize("kind", ["container", "sidecar"])
@pytest.mark.parametrize(
    ("wanted", "allocated", "actual", "pending", "counted"),
    [
        ("2", "2", "2", "", 2000),
        ("3", "2", "2", "", 3000),  # asked for, not looked at yet
        ("3", "2", "2", "Deferred", 3000),
        ("30", "2", "2", "Infeasible", 2000),
        ("30", "2", "4", "Infeasible", 4000),
        ("1", "2", "2", "", 2000),  # to be smaller, not accepted yet
        ("1", "1", "2", "", 2000),  # accepted, not done yet
        ("2000m", "2", "2", "", 2000),
    ],
)
def test_a_container_counts_for_the_most_of_what_it_wants_has_and_is_allocated(
    wanted: str, allocated: str, actual: str, pending: str, counted: int, kind: str
) -> None:
    resized = pod({"cpu": wanted}, allocated={"cpu": allocated}, actual={"cpu": actual}, pending=pending, kind=kind)
    assert requests(resized)["cpu"] == counted + 1000


def test_what_is_not_resized_counts_too() -> None:
    resized = pod({"cpu": "3", "memory": "1Gi"}, allocated={"cpu": "2"}, actual={"cpu": "2"}, pending="Infeasible")
    assert requests(resized) == {"cpu": 3000, "memory": 2**30, "pods": 1}


def test_an_allocation_counts_before_the_container_has_it() -> None:
    """Without ``resources`` in the container's status: in kube-scheduler from 1.37 on."""
    assert requests(pod({"cpu": "2"}, allocated={"cpu": "5"}))["cpu"] == 6000
    assert requests(pod({"cpu": "2"}))["cpu"] == 3000


AMOUNTS = st.tuples(*[st.integers(1, 8)] * 3)


@given(containers=st.lists(AMOUNTS, min_size=1, max_size=3), is_infeasible=st.booleans())
def test_a_pod_counts_for_at_least_what_kube_scheduler_1_37_counts(
    containers: list[tuple[int, int, int]], *, is_infeasible: bool
) -> None:
    """From 1.37 on it takes the most of the pod's three sums, up to 1.36 the sum of each container's most."""
    wanted, allocated, actual = zip(*containers, strict=True)
    document = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": str(i), "resources": {"requests": {"cpu": f"{n}"}}} for i, n in enumerate(wanted)]
        },
        "status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}] * is_infeasible,
            "containerStatuses": [
                {"name": str(i), "allocatedResources": {"cpu": f"{a}"}, "resources": {"requests": {"cpu": f"{b}"}}}
                for i, (a, b) in enumerate(zip(allocated, actual, strict=True))
            ],
        },
    }
    counted = requests(msgspec.json.decode(json.dumps(document), type=Pod))["cpu"]
    candidates = (allocated, actual) if is_infeasible else (wanted, allocated, actual)
    assert counted >= 1000 * max(map(sum, candidates))
    assert counted == 1000 * sum(map(max, zip(*candidates, strict=True)))


def test_an_unreadable_quantity_is_reported_as_without_a_resize() -> None:
    with pytest.raises(QuantityError, match="many"):
        requests(pod({"cpu": "many"}, allocated={"cpu": "2"}, actual={"cpu": "2"}))


def test_container_statuses_are_not_kept() -> None:
    """A large cluster's pods have one for each container, and nothing else reads them."""
    kept = pod({"cpu": "2"}, allocated={"cpu": "2"}, actual={"cpu": "2"})
    assert kept.status.container_statuses == []
    assert kept.status.conditions == []


@pytest.mark.parametrize(
    ("wanted", "allocated", "actual", "pending", "counted"),
    [
        ("5", "3", "3", "", 5000),
        ("5", "3", "3", "Infeasible", 3000),
        ("5", "3", "4", "Infeasible", 4000),
        ("2", "3", "4", "", 4000),  # to be smaller, not done yet
        ("2", "2", "2", "", 2000),
    ],
)
def test_the_pods_own_resources_count_for_the_most_too(
    wanted: str, allocated: str, actual: str, pending: str, counted: int
) -> None:
    """Pods with ``spec.resources`` are resized in place as a whole; kube-scheduler 1.36 counts them like containers."""
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    document = {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n7",
            "resources": {"requests": {"cpu": wanted}},
            "containers": [{"name": "a", "resources": {"requests": {"cpu": "700m", "memory": "1Gi"}}}],
        },
        "status": {
            "conditions": conditions,
            "allocatedResources": {"cpu": allocated, "memory": "8Gi"},
            "resources": {"requests": {"cpu": actual, "memory": "8Gi"}},
        },
    }
    resized = msgspec.json.decode(json.dumps(document), type=Pod)
    assert requests(resized) == {"cpu": counted, "memory": 2**30, "pods": 1}
    assert (resized.status.resources, resized.status.allocated_resources) == (None, {})
