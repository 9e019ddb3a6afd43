"""Drains with slow pods and slow shutdowns are short chains of messages."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from local.kubelets.behavior import Timing
from local.world import Options, World, sample_objects

MAX_REQUEUES = 12


@pytest.mark.flow
@pytest.mark.parametrize("nodes", [1, 4])
def test_a_shutdown_of_60_seconds_and_pods_with_40_seconds_of_grace_are_one_chain_of_few_messages(nodes: int) -> None:
    with World(options=Options(timing=Timing(stop=(40.0, 40.0)))) as world:
        world.aws.instances.stop_duration = timedelta(seconds=60)
        deployment = sample_objects.deployment("web", nodes, {"cpu": "700m", "memory": "256Mi"})
        pod = deployment["spec"]["template"]["spec"]
        pod["terminationGracePeriodSeconds"] = 40
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        pod["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": {"app": "web"}}}]
        world.apply([sample_objects.node_class(world), sample_objects.node_pool({}), deployment])
        world.run_until_idle()
        before = {c["metadata"]["name"] for c in world.claims()}
        for name in before:
            world.store.delete(world.store.kind("karpenter.sh/v1", "NodeClaim"), name)
        world.run_until(lambda: not before & {c["metadata"]["name"] for c in world.claims()})
        requeues = [
            json.loads(m.body)["detail"].get("hops", 0) for m in world.aws.queues.delivered if "drain" in m.body.lower()
        ]
        assert 0 < max(requeues) <= MAX_REQUEUES
        assert len(requeues) <= (MAX_REQUEUES + 2) * (1 if nodes == 1 else 2)
        assert world.recursive_invocations_dropped() == []
        assert world.dead_letters() == []
