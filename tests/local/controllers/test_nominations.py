"""What the cluster's scheduler does with ``status.nominatedNodeName``, which others may set too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from local.kubernetes import kinds

if TYPE_CHECKING:
    from tests.local.controllers.environment import Environment, Json


def nominate(env: Environment, pod: str, node: str) -> None:
    patch = {"status": {"nominatedNodeName": node}}
    env.store.patch(kinds.PODS, pod, patch, namespace="default", subresource="status", patch_type="merge")
    env.run(seconds=1)


def nominated_node(env: Environment, pod: str) -> str:
    node: str = env.get(kinds.PODS, pod)["status"].get("nominatedNodeName", "")
    return node


def open_node(env: Environment, name: str) -> None:
    env.patch(kinds.NODES, name, {"spec": {"taints": None}})
    env.run(seconds=1)


@pytest.fixture
def closed() -> list[Json]:
    return [{"key": "example.com/closed", "effect": "NoSchedule"}]


def test_the_nominated_node_is_taken_although_another_has_more_room(env: Environment, closed: list[Json]) -> None:
    env.node("small", taints=closed)
    env.pod("web", cpu="500m")
    env.run(seconds=1)
    nominate(env, "web", "small")
    env.patch(kinds.NODES, "small", {"spec": {"taints": None}})
    env.node("large", cpu="64")
    env.run(seconds=1)
    assert env.node_of("web") == "small"
    assert nominated_node(env, "web") == ""


def test_its_room_is_withheld_from_pods_of_equal_priority_only(env: Environment) -> None:
    env.store.create(kinds.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    env.node("n1")
    env.pod("nominated", cpu="1500m", nodeSelector={"disk": "ssd"})
    env.run(seconds=1)
    nominate(env, "nominated", "n1")
    env.pod("equal", cpu="600m")
    env.run(seconds=1)
    env.pod("high", cpu="600m", priorityClassName="high")
    env.run(seconds=1)
    assert (env.node_of("equal"), env.node_of("high")) == ("", "n1")


def test_room_is_free_when_the_nominated_pod_goes(env: Environment) -> None:
    env.node("n1")
    env.pod("nominated", cpu="1500m", nodeSelector={"disk": "ssd"})
    env.run(seconds=1)
    nominate(env, "nominated", "n1")
    env.pod("web", cpu="600m")
    env.run(seconds=1)
    assert env.node_of("web") == ""
    env.store.delete(kinds.PODS, "nominated", namespace="default", grace_period_seconds=0)
    env.run(seconds=1)
    assert env.node_of("web") == "n1"


def test_a_failed_try_clears_it_and_retries_those_that_yielded(env: Environment, closed: list[Json]) -> None:
    env.node("n1")
    env.pod("nominated", cpu="3")
    env.run(seconds=1)
    nominate(env, "nominated", "n1")
    env.pod("web", cpu="600m")
    env.run(seconds=1)
    assert (env.node_of("web"), nominated_node(env, "nominated")) == ("", "n1")
    env.node("n2", cpu="8", taints=closed)
    env.run(seconds=1)
    assert (env.node_of("web"), nominated_node(env, "nominated")) == ("n1", "")


def test_a_pod_that_may_not_preempt_keeps_it(env: Environment, closed: list[Json]) -> None:
    never = {"metadata": {"name": "never"}, "value": 0, "preemptionPolicy": "Never"}
    env.store.create(kinds.PRIORITY_CLASSES, never)
    env.node("n1")
    env.pod("nominated", cpu="3", priorityClassName="never")
    env.run(seconds=1)
    nominate(env, "nominated", "n1")
    env.node("n2", cpu="8", taints=closed)
    env.run(seconds=1)
    assert nominated_node(env, "nominated") == "n1"


def test_a_nomination_alone_does_not_retry_the_pod(env: Environment, closed: list[Json]) -> None:
    env.node("n1", taints=closed)
    env.pod("web")
    env.run(seconds=1)
    nominate(env, "web", "n1")
    env.run(seconds=60)
    assert nominated_node(env, "web") == "n1"


def test_any_change_of_taints_retries_pods_without_room(env: Environment, closed: list[Json]) -> None:
    env.node("n1")
    env.node("n2")
    env.pod("web", cpu="3")
    env.run(seconds=1)
    nominate(env, "web", "n1")
    env.patch(kinds.NODES, "n2", {"spec": {"taints": closed}})
    env.run(seconds=1)
    assert nominated_node(env, "web") == ""


def test_a_node_that_goes_does_not_hold_the_pod(env: Environment, closed: list[Json]) -> None:
    env.node("n1", taints=closed)
    env.node("n2", taints=closed)
    env.pod("web")
    env.run(seconds=1)
    nominate(env, "web", "n1")
    env.store.delete(kinds.NODES, "n1")
    open_node(env, "n2")
    assert env.node_of("web") == "n2"


def test_a_nominated_pod_keeps_away_pods_that_may_not_share_its_domain(env: Environment) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    env.node("n1")
    env.pod("nominated", labels={"app": "web"}, affinity=apart, nodeSelector={"disk": "ssd"})
    env.run(seconds=1)
    nominate(env, "nominated", "n1")
    env.pod("with-term", labels={"app": "web"}, affinity=apart)
    env.pod("without-term", labels={"app": "web"})
    env.pod("other", labels={"app": "db"})
    env.run(seconds=1)
    assert [env.node_of(name) for name in ("with-term", "without-term", "other")] == ["", "", "n1"]
