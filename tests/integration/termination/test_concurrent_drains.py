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
    from tests.integration.termination.conftest import Rig


def invoked_at_once(rig: Rig, invocations: int) -> int:
    """Invocations that all read the NodeClaim before any of them acts; how many messages are to be redelivered."""
    struct_types.prepare(["functions.termination.handler.handle"])  # invocations on Lambda don't share a process
    everyone = threading.Barrier(invocations)
    reads = itertools.count()

    def wait_for_everyone(request: Request) -> None:
        if request.method == "GET" and request.path.endswith("nodeclaims/claim-old") and next(reads) < invocations:
            everyone.wait(timeout=20)

    rig.before_request = wait_for_everyone
    (body,) = hints.message_bodies(hints.DRAIN, cluster=CLUSTER, keys=["claim-old"], time=rig.now)
    with ThreadPoolExecutor(invocations) as pool:
        return sum(pool.map(rig.invoke, [body] * invocations))


def crowded_node(rig: Rig, pods: int) -> None:
    rig.a_node("old")
    for i in range(pods):
        rig.pod(f"web-{i}", "old")
    rig.client.delete(NODE_CLAIMS.path("claim-old"))


def test_invocations_at_once_evict_each_pod_once_and_write_each_event_once(rig: Rig) -> None:
    crowded_node(rig, 100)
    invoked_at_once(rig, 4)
    assert evictions(rig) <= 110
    assert all("deletionTimestamp" in p["metadata"] for p in rig.pods())
    assert len(rig.events("Evicted")) == 100
    assert len(rig.due) == 1, "one chain of reconciles"


def test_evictions_at_once_hold_a_budget(rig: Rig) -> None:
    crowded_node(rig, 40)
    rig.budget("web", 25)
    least: list[int] = []
    rig.store.subscribe(lambda _: least.append(ready_by_app(rig)["web"]))
    invoked_at_once(rig, 4)
    assert min(least) == 25
    assert evictions(rig) <= 44


def test_a_message_that_arrives_during_a_step_is_redelivered(rig: Rig) -> None:
    crowded_node(rig, 10)
    seen: list[int] = []

    def deliver_another(request: Request) -> None:
        if "eviction" in request.path and not seen:
            seen.append(0)
            (body,) = hints.message_bodies(hints.DRAIN, cluster=CLUSTER, keys=["claim-old"], time=rig.now)
            with ThreadPoolExecutor(1) as pool:
                seen.append(pool.submit(rig.invoke, body).result())

    rig.before_request = deliver_another
    rig.send(hints.DRAIN, "claim-old")
    rig.step()
    assert seen == [0, 1]
    assert evictions(rig) == 10


def test_a_step_whose_invocation_died_is_repeated_when_its_stamp_is_old(rig: Rig) -> None:
    crowded_node(rig, 10)

    stamp = {step_stamp.STEP_UNTIL: (rig.now + step_stamp.STEP_TIMEOUT).isoformat()}
    rig.client.patch(NODE_CLAIMS.path("claim-old"), {"metadata": {"annotations": stamp}})
    (body,) = hints.message_bodies(hints.DRAIN, cluster=CLUSTER, keys=["claim-old"], time=rig.now)
    assert rig.invoke(body) == 1
    assert evictions(rig) == 0
    rig.turn(step_stamp.STEP_TIMEOUT.total_seconds())
    assert rig.invoke(body) == 0
    assert all("deletionTimestamp" in p["metadata"] for p in rig.pods())
    assert step_stamp.STEP_UNTIL not in rig.stored_claim("claim-old")["metadata"]["annotations"]


def test_evictions_that_hang_leave_pods_to_the_next_step(rig: Rig) -> None:
    crowded_node(rig, 40)
    hanging = threading.Lock()

    def hang(request: Request) -> None:
        if "eviction" in request.path:
            with hanging:
                rig.turn(1)

    rig.before_request = hang
    rig.send(hints.DRAIN, "claim-old")
    rig.step()
    first = evictions(rig)
    assert 8 <= first < 40
    rig.run(until=lambda: all("deletionTimestamp" in p["metadata"] for p in rig.pods()))
    assert evictions(rig) == 40
