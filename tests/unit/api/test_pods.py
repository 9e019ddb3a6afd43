from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.api.kubernetes import Pod
from shared.api.pods import (
    FOREVER,
    do_not_disrupt,
    is_daemon,
    is_mirror,
    is_pending,
    is_protected,
    is_provisionable,
    is_reschedulable,
    is_terminal,
    is_terminating,
    requests,
)
from shared.api.quantity import QuantityError, Resources

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
UNSCHEDULABLE = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}


def pod(
    spec: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> Pod:
    return msgspec.convert({"metadata": metadata or {}, "spec": spec or {}, "status": status or {}}, Pod)


def container(cpu: str, restart: str = "") -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu}}, "restartPolicy": restart}


def cpu(spec: dict[str, Any]) -> int:
    return requests(pod(spec)).get("cpu", 0)


def test_a_pod_without_requests_still_takes_a_place() -> None:
    assert requests(pod({"containers": [{}]})) == {"pods": 1}


def test_containers_add_up() -> None:
    spec = {"containers": [container("500m"), {"resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}]}
    assert requests(pod(spec)) == {"cpu": 1500, "memory": 2**30, "pods": 1}


def test_a_limit_without_a_request_is_the_request() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    assert requests(pod({"containers": [{"resources": resources}]})) == {"cpu": 1000, "memory": 2**30, "pods": 1}


def test_an_init_container_counts_only_when_it_is_larger_than_all_that_follows() -> None:
    assert cpu({"containers": [container("1")], "initContainers": [container("3"), container("2")]}) == 3000
    assert cpu({"containers": [container("4")], "initContainers": [container("3")]}) == 4000


def test_a_sidecar_runs_on_next_to_the_containers() -> None:
    assert cpu({"containers": [container("1")], "initContainers": [container("2", "Always")]}) == 3000


def test_a_sidecar_counts_next_to_init_containers_after_it_but_not_before() -> None:
    after = {"containers": [container("1")], "initContainers": [container("1", "Always"), container("4")]}
    before = {"containers": [container("1")], "initContainers": [container("4"), container("1", "Always")]}
    assert cpu(after) == 5000
    assert cpu(before) == 4000


def test_overhead_comes_on_top() -> None:
    assert cpu({"containers": [container("1")], "overhead": {"cpu": "250m"}}) == 1250


def test_pod_level_requests_replace_the_containers_sum() -> None:
    spec = {"containers": [container("1"), container("1")], "resources": {"requests": {"cpu": "5", "example.com/x": 3}}}
    assert requests(pod(spec)) == {"cpu": 5000, "pods": 1}


def test_a_pod_level_limit_counts_only_for_resources_that_no_container_requests() -> None:
    spec = {"containers": [container("1")], "resources": {"limits": {"cpu": "5", "memory": "1Gi"}}}
    assert requests(pod(spec)) == {"cpu": 1000, "memory": 2**30, "pods": 1}


def test_a_bad_quantity_is_reported_with_its_field() -> None:
    spec = {"containers": [{}, {"resources": {"requests": {"memory": "1GB"}}}]}
    with pytest.raises(QuantityError, match=r'spec\.containers\[1\]\.resources\.requests\.memory: "1GB"'):
        requests(pod(spec))


amounts = st.integers(0, 5000)


@given(st.lists(amounts, max_size=4), st.lists(st.tuples(amounts, st.booleans()), max_size=4), amounts)
def test_a_node_with_the_requested_room_is_enough_at_every_moment(
    main: list[int], init: list[tuple[int, bool]], overhead: int
) -> None:
    spec = {
        "containers": [container(f"{m}m") for m in main],
        "initContainers": [container(f"{m}m", "Always" if sidecar else "") for m, sidecar in init],
        "overhead": {"cpu": f"{overhead}m"},
    }
    moments = []
    sidecars = 0
    for amount, sidecar in init:
        moments.append(sidecars + amount)
        sidecars += amount if sidecar else 0
    moments.append(sidecars + sum(main))
    assert cpu(spec) == max(moments) + overhead


def test_a_pod_that_the_scheduler_could_not_place_is_provisionable() -> None:
    assert is_provisionable(pod(status=UNSCHEDULABLE))
    assert not is_provisionable(pod())
    assert not is_provisionable(pod({"nodeName": "n"}, status=UNSCHEDULABLE))
    assert not is_provisionable(pod(status={**UNSCHEDULABLE, "nominatedNodeName": "n"}))
    assert not is_provisionable(pod(metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"}, status=UNSCHEDULABLE))


def test_a_gated_pod_waits_for_somebody_else() -> None:
    gated = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}
    assert not is_provisionable(pod({"schedulingGates": [{"name": "g"}]}, status=gated))
    assert not is_pending(pod({"schedulingGates": [{"name": "g"}]}))
    assert is_pending(pod())


@pytest.mark.parametrize(
    "owner",
    [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1"},
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "1"},
    ],
)
def test_pods_of_daemonsets_and_nodes_ask_for_no_node(owner: dict[str, str]) -> None:
    owned = pod(metadata={"ownerReferences": [owner]}, status=UNSCHEDULABLE)
    assert not is_provisionable(owned)
    assert not is_reschedulable(owned)


def test_a_daemonset_of_another_group_is_no_daemonset() -> None:
    owner = {"apiVersion": "apps.kruise.io/v1", "kind": "DaemonSet", "name": "d", "uid": "1"}
    assert not is_daemon(pod(metadata={"ownerReferences": [owner]}))


def test_states_of_a_pod() -> None:
    assert is_terminal(pod(status={"phase": "Succeeded"}))
    assert is_terminal(pod(status={"phase": "Failed"}))
    assert not is_terminal(pod(status={"phase": "Running"}))
    assert is_terminating(pod(metadata={"deletionTimestamp": "2026-11-21T00:00:00Z"}))
    assert is_mirror(pod(metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}))


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({"karpenter.sh/do-not-disrupt": "true"}, FOREVER),
        ({"karpenter.sh/do-not-evict": "true"}, FOREVER),
        ({"karpenter.sh/do-not-consolidate": "true"}, FOREVER),
        ({"karpenter.sh/do-not-disrupt": "90m"}, timedelta(minutes=90)),
        ({"karpenter.sh/do-not-disrupt": "false"}, None),
        ({"karpenter.sh/do-not-disrupt": "0s"}, None),
        ({"karpenter.sh/do-not-evict": "90m"}, None),
    ],
)
def test_annotations_protect_for_good_or_for_a_time(annotations: dict[str, str], expected: timedelta | None) -> None:
    assert do_not_disrupt(annotations) == expected


def test_protection_for_a_time_ends() -> None:
    hour = {"karpenter.sh/do-not-disrupt": "1h"}
    assert is_protected(hour, since=None, now=NOW)
    assert is_protected(hour, since=NOW - timedelta(minutes=59), now=NOW)
    assert not is_protected(hour, since=NOW - timedelta(minutes=60), now=NOW)
    assert is_protected({"karpenter.sh/do-not-disrupt": "true"}, since=NOW - timedelta(days=9999), now=NOW)
    assert not is_protected({}, since=NOW, now=NOW)


def test_requests_are_exact_integers() -> None:
    totals: Resources = requests(pod({"containers": [container("0.1"), container("0.2")]}))
    assert totals["cpu"] == 300
