"""CapacityBuffers: room is kept on nodes before pods need it, used by pods at once, and bought again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.kubernetes import kinds
from local.world import Options, World, sample_objects
from shared.api.capacity_buffer import PROVISIONING, READY_FOR_PROVISIONING
from shared.api.labels import PLANNED_PODS, PODS_NOT_NOMINATED_TAINT
from tests.e2e.world_state import capacity_buffer, events, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REQUESTS = {"cpu": "900m", "memory": "900Mi"}
ON_DEMAND = {"karpenter.sh/capacity-type": ["on-demand"], "karpenter.k8s.aws/instance-cpu": ["2", "4", "8"]}
WEB = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}
MINUTE = timedelta(minutes=1)
NAME = "capacitybuffers.autoscaling.x-k8s.io"

Json = dict[str, Any]


def buffer(**spec: object) -> Json:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "warm", "namespace": "default"},
        "spec": spec,
    }


def pod_template(requests: Json = REQUESTS) -> Json:
    container = {"name": "c", "image": "x", "resources": {"requests": dict(requests)}}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "web", "namespace": "default"},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
    }


@pytest.fixture
def world() -> Iterator[World]:
    with World(options=Options()) as world:
        yield world


def start(world: World, *objects: Json, replicas: int = 1, **pool: Any) -> None:
    """A NodePool of small on-demand nodes, one Deployment, and these objects; then five minutes."""
    fields = {"disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}, **pool}
    web = sample_objects.deployment("web", replicas, REQUESTS)
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(ON_DEMAND, **fields), web, *objects])
    world.run_for(5 * MINUTE)


def condition(world: World, type_: str, name: str = "warm") -> tuple[str, str, str]:
    conditions = {c["type"]: c for c in capacity_buffer(world, name).get("status", {}).get("conditions", [])}
    current = conditions.get(type_, {})
    return current.get("status", ""), current.get("reason", ""), current.get("message", "")


def is_whole(world: World) -> bool:
    return condition(world, PROVISIONING)[:2] == ("True", "FitsExistingCapacity")


@pytest.mark.flow
def test_pods_run_within_seconds_in_the_room_of_a_buffer_which_is_then_bought_again(
    world: World, load: Callable[[str], list[Json]]
) -> None:
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(ON_DEMAND)])
    world.apply(load("capacity-buffer.yaml"))
    world.run_until(lambda: condition(world, PROVISIONING, "web")[0] == "True" and len(running(world)) == 1)
    claims = {c["metadata"]["name"] for c in world.claims()}
    nodes = {n["metadata"]["name"] for n in world.nodes()}

    world.scale("default", "web", 6)
    since = world.clock.now()
    world.run_until(lambda: len(running(world)) == 6)
    # By the timeline: a run ends only when the function that buys new room does.
    bound = [event.at for event in world.timeline.of("pod bound") if event.at >= since]
    assert len(bound) == 5
    assert max(bound) - since <= timedelta(seconds=1)
    # Kubelets of the local world stand still while an invocation takes its time.
    invocations = [event.details["latency"] for event in world.timeline.of("invocation") if event.at >= since]
    ran = max(event.at for event in world.timeline.of("pod running"))
    assert ran - since <= timedelta(seconds=3 + max(invocations, default=0))
    assert {p["spec"]["nodeName"] for p in world.pods(phase="Running")} <= nodes
    launched = [c for c in world.claims() if c["metadata"]["name"] not in claims]
    assert not any(c["metadata"]["annotations"].get(PLANNED_PODS) for c in launched)  # only for the buffer
    startup_taints = {taint["key"] for c in launched for taint in c["spec"].get("startupTaints", [])}
    assert PODS_NOT_NOMINATED_TAINT not in startup_taints

    world.run_until(lambda: len(world.claims()) > len(claims), limit=MINUTE)
    bought = min(event.at for event in world.timeline.of("claim created") if event.at > since)
    assert bought - since <= timedelta(seconds=20)  # by the relay's hint, not by the sweep
    world.run_until(lambda: condition(world, PROVISIONING, "web")[0] == "True")
    world.run_for(3 * MINUTE)
    assert condition(world, PROVISIONING, "web") == (
        "True",
        "FitsExistingCapacity",
        "all 5 chunks fit on existing nodes",
    )
    assert capacity_buffer(world, "web")["status"]["replicas"] == 5
    assert not world.failures()


def test_a_buffer_is_whole_as_soon_as_its_node_is_initialized(world: World) -> None:
    start(world, replicas=0)
    world.apply(buffer(**WEB, replicas=2))
    world.run_until(lambda: bool(world.timeline.of("claim initialized")))
    since = world.clock.now()
    world.run_until(lambda: is_whole(world))
    assert world.clock.now() - since <= timedelta(seconds=2)


def test_a_percentage_follows_the_deployment_and_what_is_scaled_in_frees_its_nodes(world: World) -> None:
    start(world, buffer(**WEB, percentage=50), replicas=4)
    assert capacity_buffer(world, "warm")["status"]["replicas"] == 2
    assert is_whole(world)
    world.scale("default", "web", 20)
    world.run_for(5 * MINUTE)
    assert capacity_buffer(world, "warm")["status"]["replicas"] == 10
    assert is_whole(world)
    large = len(world.nodes())
    world.scale("default", "web", 2)
    world.run_for(10 * MINUTE)
    assert capacity_buffer(world, "warm")["status"]["replicas"] == 1
    assert is_whole(world)
    assert len(world.nodes()) < large


def test_limits_say_how_many_chunks_there_are(world: World) -> None:
    start(world, pod_template(), buffer(podTemplateRef={"name": "web"}, limits={"cpu": "4"}), replicas=0)
    status = capacity_buffer(world, "warm")["status"]
    assert (status["replicas"], status["podTemplateRef"]) == (4, {"name": "web"})
    assert status["podTemplateGeneration"] == 1
    assert status["provisioningStrategy"] == "buffer.x-k8s.io/active-capacity"
    assert is_whole(world)
    assert world.pods() == []


def test_the_nodes_of_a_deleted_buffer_go(world: World) -> None:
    start(world, buffer(**WEB, replicas=6), replicas=0)
    assert is_whole(world)
    assert world.nodes()
    world.store.delete(world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer"), "warm", namespace="default")
    world.run_for(10 * MINUTE)
    assert world.nodes() == []


def test_at_the_limits_of_a_nodepool_pods_come_before_chunks(world: World) -> None:
    start(world, buffer(**WEB, replicas=6), replicas=3, limits={"cpu": "8"})
    assert len(running(world)) == 3
    world.scale("default", "web", 6)
    world.run_for(3 * MINUTE)
    assert len(running(world)) == 6
    status, reason, message = condition(world, PROVISIONING)
    assert (status, reason) == ("False", "RequiresNewCapacity")
    assert "limit" in message
    assert sum(int(n["status"]["capacity"]["cpu"]) for n in world.nodes()) <= 8


def test_consolidation_keeps_the_room_and_does_not_churn(world: World) -> None:
    start(world, buffer(**WEB, replicas=5), replicas=3)
    world.run_for(5 * MINUTE)
    assert is_whole(world)
    before = {n["metadata"]["name"] for n in world.nodes()}
    for _ in range(20):
        world.run_for(MINUTE)
        assert is_whole(world)
    assert {n["metadata"]["name"] for n in world.nodes()} == before


def test_a_buffer_without_its_template_says_so_and_recovers(world: World) -> None:
    start(world, buffer(podTemplateRef={"name": "web"}, replicas=2), replicas=0)
    assert condition(world, READY_FOR_PROVISIONING) == (
        "False",
        "PodTemplateNotFound",
        "there is no valid PodTemplate web in namespace default",
    )
    assert condition(world, PROVISIONING)[:2] == ("False", "NotReadyForProvisioning")
    (event,) = events(world, "PodTemplateNotFound", name="warm", kind="CapacityBuffer")
    assert event["message"] == "there is no valid PodTemplate web in namespace default"
    assert world.nodes() == []
    world.apply(pod_template())
    world.run_for(5 * MINUTE)
    assert condition(world, READY_FOR_PROVISIONING)[:2] == ("True", "Resolved")
    assert is_whole(world)


def test_chunks_that_no_nodepool_takes_are_said_and_launch_nothing(world: World) -> None:
    start(world, pod_template({"cpu": "900"}), buffer(podTemplateRef={"name": "web"}, replicas=2), replicas=0)
    status, reason, message = condition(world, PROVISIONING)
    assert (status, reason) == ("False", "RequiresNewCapacity")
    assert message.startswith("0 of 2 chunks fit on existing nodes; 2 can't be scheduled: ")
    assert world.claims() == []


def test_a_buffer_of_another_strategy_is_left_alone(world: World) -> None:
    static = buffer(**WEB, replicas=5, provisioningStrategy="buffer.x-k8s.io/static-capacity")
    start(world, static, replicas=0)
    assert "status" not in capacity_buffer(world, "warm")
    assert world.nodes() == []


@pytest.mark.long
def test_drifted_nodes_with_room_of_a_buffer_only_are_replaced(world: World) -> None:
    start(world, buffer(**WEB, replicas=3), replicas=0)
    assert is_whole(world)
    before = {n["metadata"]["name"] for n in world.nodes()}
    pool = sample_objects.node_pool(ON_DEMAND, template={"taints": [], "terminationGracePeriod": "5m"})
    world.apply(pool)
    world.run_until(lambda: before.isdisjoint(n["metadata"]["name"] for n in world.nodes()))
    world.run_for(MINUTE)
    assert is_whole(world)


def test_an_interrupted_node_with_room_of_a_buffer_only_is_replaced(world: World) -> None:
    spot = sample_objects.node_pool({"karpenter.sh/capacity-type": ["spot"], "karpenter.k8s.aws/instance-cpu": ["4"]})
    world.apply([sample_objects.node_class(world), spot, sample_objects.deployment("web", 0, REQUESTS)])
    world.apply(buffer(**WEB, replicas=3))
    world.run_until(lambda: is_whole(world))
    (instance,) = world.instances()
    world.interrupt_spot([instance.id])
    world.run_for(4 * MINUTE)
    assert instance.id not in {i.id for i in world.instances() if i.state == "running"}
    assert is_whole(world)
    assert not world.failures()


def test_chunks_keep_the_rules_of_their_pods(world: World) -> None:
    apart = sample_objects.one_per_node("web")
    template = pod_template()
    template["template"]["spec"] |= {"affinity": apart, "nodeSelector": {"topology.kubernetes.io/zone": "us-east-1b"}}
    start(world, template, buffer(podTemplateRef={"name": "web"}, replicas=3), replicas=0)
    assert is_whole(world)
    zones = [n["metadata"]["labels"]["topology.kubernetes.io/zone"] for n in world.nodes()]
    assert zones == ["us-east-1b"] * 3


def test_a_changed_template_and_number_are_followed(world: World) -> None:
    start(world, pod_template(), buffer(podTemplateRef={"name": "web"}, replicas=6), replicas=0)
    before = sum(int(n["status"]["capacity"]["cpu"]) for n in world.nodes())
    world.apply([pod_template({"cpu": "400m"}), buffer(podTemplateRef={"name": "web"}, replicas=3)])
    world.run_for(10 * MINUTE)
    assert (
        capacity_buffer(world, "warm")["status"]["podTemplateGeneration"],
        capacity_buffer(world, "warm")["status"]["replicas"],
    ) == (2, 3)
    assert is_whole(world)
    assert 0 < sum(int(n["status"]["capacity"]["cpu"]) for n in world.nodes()) < before


def test_a_buffer_that_is_deleted_at_once_leaves_no_node(world: World) -> None:
    start(world, replicas=0)
    kind = world.store.kind("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer")
    for _ in range(3):
        world.apply(buffer(**WEB, replicas=4))
        world.run_for(timedelta(seconds=3))
        world.store.delete(kind, "warm", namespace="default")
    world.run_for(12 * MINUTE)
    assert world.nodes() == []
    assert world.claims() == []


def test_a_cluster_without_the_kind_works(world: World) -> None:
    world.store.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, NAME)
    start(world, replicas=3)
    assert len(running(world)) == 3
    assert not world.failures()


def test_a_cluster_that_only_serves_the_older_version_works(world: World) -> None:
    definition = world.store.get(kinds.CUSTOM_RESOURCE_DEFINITIONS, NAME)
    world.store.delete(kinds.CUSTOM_RESOURCE_DEFINITIONS, NAME)
    older = next(v for v in definition["spec"]["versions"] if v["name"] == "v1alpha1")
    spec = {**definition["spec"], "versions": [{**older, "storage": True}]}
    world.store.create(
        kinds.CUSTOM_RESOURCE_DEFINITIONS,
        {"apiVersion": definition["apiVersion"], "kind": definition["kind"], "metadata": {"name": NAME}, "spec": spec},
    )
    start(world, {**buffer(**WEB, replicas=2), "apiVersion": "autoscaling.x-k8s.io/v1alpha1"}, replicas=1)
    stored_buffer = world.store.get(
        world.store.kind("autoscaling.x-k8s.io/v1alpha1", "CapacityBuffer"), "warm", namespace="default"
    )
    assert stored_buffer["status"]["replicas"] == 2
