"""What the cluster's scheduler does with ``status.nominatedNodeName``, which others may set too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds

if TYPE_CHECKING:
    from tests.integration.controllers.rig import Json, Rig


def nominate(rig: Rig, pod: str, node: str) -> None:
    patch = {"status": {"nominatedNodeName": node}}
    rig.store.patch(kinds.PODS, pod, patch, namespace="default", subresource="status", patch_type="merge")
    rig.run(seconds=1)


def nominated_node(rig: Rig, pod: str) -> str:
    node: str = rig.get(kinds.PODS, pod)["status"].get("nominatedNodeName", "")
    return node


def open_node(rig: Rig, name: str) -> None:
    rig.patch(kinds.NODES, name, {"spec": {"taints": None}})
    rig.run(seconds=1)


@pytest.fixture
def closed() -> list[Json]:
    return [{"key": "example.com/closed", "effect": "NoSchedule"}]


def test_the_nominated_node_is_taken_although_another_has_more_room(rig: Rig, closed: list[Json]) -> None:
    rig.node("small", taints=closed)
    rig.pod("web", cpu="500m")
    rig.run(seconds=1)
    nominate(rig, "web", "small")
    rig.patch(kinds.NODES, "small", {"spec": {"taints": None}})
    rig.node("large", cpu="64")
    rig.run(seconds=1)
    assert rig.node_of("web") == "small"
    assert nominated_node(rig, "web") == ""


def test_its_room_is_withheld_from_pods_of_equal_priority_only(rig: Rig) -> None:
    rig.store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    rig.node("n1")
    rig.pod("nominated", cpu="1500m", nodeSelector={"disk": "ssd"})
    rig.run(seconds=1)
    nominate(rig, "nominated", "n1")
    rig.pod("equal", cpu="600m")
    rig.run(seconds=1)
    rig.pod("high", cpu="600m", priorityClassName="high")
    rig.run(seconds=1)
    assert (rig.node_of("equal"), rig.node_of("high")) == ("", "n1")


def test_room_is_free_when_the_nominated_pod_goes(rig: Rig) -> None:
    rig.node("n1")
    rig.pod("nominated", cpu="1500m", nodeSelector={"disk": "ssd"})
    rig.run(seconds=1)
    nominate(rig, "nominated", "n1")
    rig.pod("web", cpu="600m")
    rig.run(seconds=1)
    assert rig.node_of("web") == ""
    rig.store.delete(kinds.PODS, "nominated", namespace="default", grace_period_seconds=0)
    rig.run(seconds=1)
    assert rig.node_of("web") == "n1"


def test_a_failed_try_clears_it_and_retries_those_that_yielded(rig: Rig, closed: list[Json]) -> None:
    rig.node("n1")
    rig.pod("nominated", cpu="3")
    rig.run(seconds=1)
    nominate(rig, "nominated", "n1")
    rig.pod("web", cpu="600m")
    rig.run(seconds=1)
    assert (rig.node_of("web"), nominated_node(rig, "nominated")) == ("", "n1")
    rig.node("n2", cpu="8", taints=closed)
    rig.run(seconds=1)
    assert (rig.node_of("web"), nominated_node(rig, "nominated")) == ("n1", "")


def test_a_pod_that_may_not_preempt_keeps_it(rig: Rig, closed: list[Json]) -> None:
    never = {"metadata": {"name": "never"}, "value": 0, "preemptionPolicy": "Never"}
    rig.store.create(kinds.PRIORITY_CLASSES, never)
    rig.node("n1")
    rig.pod("nominated", cpu="3", priorityClassName="never")
    rig.run(seconds=1)
    nominate(rig, "nominated", "n1")
    rig.node("n2", cpu="8", taints=closed)
    rig.run(seconds=1)
    assert nominated_node(rig, "nominated") == "n1"


def test_a_nomination_alone_does_not_retry_the_pod(rig: Rig, closed: list[Json]) -> None:
    rig.node("n1", taints=closed)
    rig.pod("web")
    rig.run(seconds=1)
    nominate(rig, "web", "n1")
    rig.run(seconds=60)
    assert nominated_node(rig, "web") == "n1"


def test_any_change_of_taints_retries_pods_without_room(rig: Rig, closed: list[Json]) -> None:
    rig.node("n1")
    rig.node("n2")
    rig.pod("web", cpu="3")
    rig.run(seconds=1)
    nominate(rig, "web", "n1")
    rig.patch(kinds.NODES, "n2", {"spec": {"taints": closed}})
    rig.run(seconds=1)
    assert nominated_node(rig, "web") == ""


def test_a_node_that_goes_does_not_hold_the_pod(rig: Rig, closed: list[Json]) -> None:
    rig.node("n1", taints=closed)
    rig.node("n2", taints=closed)
    rig.pod("web")
    rig.run(seconds=1)
    nominate(rig, "web", "n1")
    rig.store.delete(kinds.NODES, "n1")
    open_node(rig, "n2")
    assert rig.node_of("web") == "n2"


def test_a_nominated_pod_keeps_away_pods_that_may_not_share_its_domain(rig: Rig) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    rig.node("n1")
    rig.pod("nominated", labels={"app": "web"}, affinity=apart, nodeSelector={"disk": "ssd"})
    rig.run(seconds=1)
    nominate(rig, "nominated", "n1")
    rig.pod("with-term", labels={"app": "web"}, affinity=apart)
    rig.pod("without-term", labels={"app": "web"})
    rig.pod("other", labels={"app": "db"})
    rig.run(seconds=1)
    assert [rig.node_of(name) for name in ("with-term", "without-term", "other")] == ["", "", "n1"]
