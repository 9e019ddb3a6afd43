"""Tenon's functions, the relay and kubelets next to a real API server, scheduler and controller-manager.

Functions are judged by the cluster's RBAC, kubelets by the Node authorizer and NodeRestriction; a denied request fails
the world at its end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from local.world import sample_objects
from shared.api import labels

if TYPE_CHECKING:
    from local.real.cluster import RealControlPlane
    from local.world import World

RUNNING_LIMIT = timedelta(seconds=90)
GONE_LIMIT = timedelta(minutes=4)


def test_pending_pods_get_a_node_which_goes_when_it_is_empty(world: World, control_plane: RealControlPlane) -> None:
    world.apply(sample_objects.deployment("web", 10, {"cpu": "500m", "memory": "512Mi"}))

    world.run_until(lambda: len(world.pods(phase="Running")) == 10, limit=RUNNING_LIMIT)

    assert [call.operation for call in world.aws.calls.all].count("CreateFleet") >= 1
    launched = {instance.id for instance in world.instances()}
    assert {node["spec"]["providerID"].rpartition("/")[2] for node in world.nodes()} == launched
    assert all(node["metadata"]["labels"][labels.NODEPOOL] == "default" for node in world.nodes())

    world.scale("default", "web", 0)
    world.run_until(lambda: not (world.nodes() or world.claims() or world.instances()), limit=GONE_LIMIT)

    callers = {request.caller for request in control_plane.log.requests}
    assert callers >= {"provisioner", "lifecycle", "disruption", "termination"}


def test_pods_of_an_interrupted_node_run_elsewhere_before_the_instance_goes(world: World) -> None:
    world.apply(sample_objects.budget("web", 2))
    world.apply(sample_objects.deployment("web", 6, {"cpu": "500m", "memory": "512Mi"}))
    world.run_until(lambda: len(world.pods(phase="Running")) == 6, limit=RUNNING_LIMIT)
    interrupted = [i for i in world.instances() if i.lifecycle == "spot"]
    assert interrupted, "spot instances are cheaper, so they were bought"
    names = {i.private_dns_name for i in interrupted}

    world.interrupt_spot([i.id for i in interrupted])
    warned = world.clock.now()
    world.run_until(
        lambda: sum(pod["spec"].get("nodeName") not in names for pod in world.pods(phase="Running")) == 6,
        limit=timedelta(seconds=119),
    )

    assert world.clock.now() - warned < timedelta(minutes=2)
    world.run_until(lambda: names.isdisjoint(node["metadata"]["name"] for node in world.nodes()), limit=GONE_LIMIT)


def test_spread_and_anti_affinity_hold_at_every_moment(world: World) -> None:
    # The fixture checks each binding.
    selector = {"matchLabels": {"app": "spread"}}
    spread = {"maxSkew": 1, "topologyKey": labels.ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    term = {"topologyKey": labels.HOSTNAME, "labelSelector": {"matchLabels": {"app": "apart"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    requests = {"cpu": "500m", "memory": "512Mi"}

    world.apply(
        [
            sample_objects.deployment("spread", 12, requests, topologySpreadConstraints=[spread]),
            sample_objects.deployment("apart", 4, requests, affinity=apart),
            sample_objects.deployment("plain", 20, {"cpu": "250m", "memory": "1Gi"}),
        ]
    )

    world.run_until(lambda: len(world.pods(phase="Running")) == 36, limit=GONE_LIMIT)
    hosts = [pod["spec"]["nodeName"] for pod in world.pods() if pod["metadata"]["labels"]["app"] == "apart"]
    assert len(set(hosts)) == 4


def test_a_pod_that_only_others_anti_affinity_keeps_away_runs_soon_after_its_node_is_up(world: World) -> None:
    # From 1.37 on, kube-scheduler tries such a pod for no new node; it would wait for five minutes.
    term = {"topologyKey": labels.HOSTNAME, "labelSelector": {"matchLabels": {"app": "db"}}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    requests = {"cpu": "100m", "memory": "128Mi"}
    world.apply(sample_objects.deployment("lonely", 1, requests, affinity=apart))
    world.run_until(lambda: len(world.pods(phase="Running")) == 1, limit=RUNNING_LIMIT)

    world.apply(sample_objects.deployment("db", 1, requests))

    world.run_until(lambda: len(world.pods(phase="Running")) == 2, limit=RUNNING_LIMIT)
    assert len(world.instances()) == 2


def test_a_statefulset_moves_when_all_its_nodes_are_deleted(world: World) -> None:
    stateful = sample_objects.deployment("db", 12, {"cpu": "500m", "memory": "512Mi"})
    stateful |= {"kind": "StatefulSet"}
    stateful["spec"] |= {"serviceName": "db", "podManagementPolicy": "Parallel"}
    world.apply(stateful)
    world.run_until(lambda: len(world.pods(phase="Running")) == 12, limit=RUNNING_LIMIT)
    before = {pod["metadata"]["uid"] for pod in world.pods()}
    nodes = {node["metadata"]["uid"] for node in world.nodes()}

    kind = world.store.kind("karpenter.sh/v1", "NodeClaim")
    for claim in world.claims():
        world.store.delete(kind, claim["metadata"]["name"])
    world.run_until(
        lambda: (
            len([p for p in world.pods(phase="Running") if p["metadata"]["uid"] not in before]) == 12
            and nodes.isdisjoint(node["metadata"]["uid"] for node in world.nodes())
        ),
        limit=GONE_LIMIT,
    )
