"""Invocations at once for one NodeClaim: each pod is evicted once, and an invocation that dies is replaced."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from functions.termination import step_stamp
from local.aws import struct_types
from shared.base import hints
from shared.cluster.resources import NODE_CLAIMS
from tests.integration.termination.conftest import CLUSTER, evictions, ready_by_app

if TYPE_CHECKING:
    from local.kubernetes.apiserver.http import Request
    from tests.integration.termination.conftest import Environment


def invoked_at_once(env: Environment, invocations: int) -> int:
    """Invocations that all read the NodeClaim before any of them acts; how many messages are to be redelivered."""
    struct_types.prepare(["functions.termination.handler.handle"])  # invocations on Lambda don't share a process
    everyone = threading.Barrier(invocations)
    reads = itertools.count()

    def wait_for_everyone(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("nodeclaims/claim-old") and next(reads) < invocations:
            everyone.wait(timeout=20)

    env.before_request = wait_for_everyone
    (body,) = hints.message_bodies(hints.DRAIN, cluster=CLUSTER, keys=["claim-old"], time=env.now)
    with ThreadPoolExecutor(invocations) as pool:
        return sum(pool.map(env.invoke, [body] * invocations))


def crowded_node(env: Environment, pods: int) -> None:
    env.a_node("old")
    for i in range(pods):
        env.pod(f"web-{i}", "old")
    env.client.delete(NODE_CLAIMS.path("claim-old"))


def test_invocations_at_once_evict_each_pod_once_and_write_each_event_once(env: Environment) -> None:
    crowded_node(env, 100)
    invoked_at_once(env, 4)
    assert evictions(env) <= 110
    assert all("deletionTimestamp" in p["metadata"] for p in env.pods())
    assert len(env.events("Evicted")) == 100
    assert len(env.due) == 1, "one chain of reconciles"


def test_evictions_at_once_hold_a_budget(env: Environment) -> None:
    crowded_node(env, 40)
    env.budget("web", 25)
    least: list[int] = []
    env.store.subscribe(lambda _: least.append(ready_by_app(env)["web"]))
    invoked_at_once(env, 4)
    assert min(least) == 25
    assert evictions(env) <= 44


def test_a_message_that_arrives_during_a_step_is_redelivered(env: Environment) -> None:
    crowded_node(env, 10)
    seen: list[int] = []

    def deliver_another(request: Request) -> None:
        if "eviction" in request.path and not seen:
            seen.append(0)
            (body,) = hints.message_bodies(hints.DRAIN, cluster=CLUSTER, keys=["claim-old"], time=env.now)
            with ThreadPoolExecutor(1) as pool:
                seen.append(pool.submit(env.invoke, body).result())

    env.before_request = deliver_another
    env.send(hints.DRAIN, "claim-old")
    env.step()
    assert seen == [0, 1]
    assert evictions(env) == 10


def test_a_step_whose_invocation_died_is_repeated_when_its_stamp_is_old(env: Environment) -> None:
    crowded_node(env, 10)

    stamp = {step_stamp.STEP_UNTIL: (env.now + step_stamp.STEP_TIMEOUT).isoformat()}
    env.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"annotations": stamp}})
    (body,) = hints.message_bodies(hints.DRAIN, cluster=CLUSTER, keys=["claim-old"], time=env.now)
    assert env.invoke(body) == 1
    assert evictions(env) == 0
    env.turn(step_stamp.STEP_TIMEOUT.total_seconds())
    assert env.invoke(body) == 0
    assert all("deletionTimestamp" in p["metadata"] for p in env.pods())
    assert step_stamp.STEP_UNTIL not in env.stored_claim("claim-old")["metadata"]["annotations"]


def test_evictions_that_hang_leave_pods_to_the_next_step(env: Environment) -> None:
    crowded_node(env, 40)
    hanging = threading.Lock()

    def hang(request: Request) -> None:
        if "eviction" in request.path:
            with hanging:
                env.turn(1)

    env.before_request = hang
    env.send(hints.DRAIN, "claim-old")
    env.step()
    first = evictions(env)
    assert 8 <= first < 40
    env.run(until=lambda: all("deletionTimestamp" in p["metadata"] for p in env.pods()))
    assert evictions(env) == 40
