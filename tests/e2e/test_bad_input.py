"""Bad input gets a clear word on the object it belongs to, and the rest continues."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from local.world import sample_objects
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from local.world import World


def condition(obj: dict[str, Any], type_: str) -> dict[str, Any]:
    return next(c for c in obj["status"]["conditions"] if c["type"] == type_)


def the_rest_goes_on(world: World) -> None:
    world.scale("default", "inflate", 2)
    world.run_until_idle()
    assert len(world.pods(phase="Running")) == 2
    assert world.failures() == []


def events_on(world: World, name: str) -> list[str]:
    return [event["message"] for event in events(world, name=name)]


@pytest.mark.flow
def test_a_provisioner_with_an_unknown_operator_gets_an_error_that_names_it(spot_default: World) -> None:
    world = spot_default
    world.apply(
        {
            "apiVersion": "karpenter.sh/v1alpha5",
            "kind": "Provisioner",
            "metadata": {"name": "broken"},
            "spec": {
                "providerRef": {"name": "default"},
                "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "Is", "values": ["spot"]}],
            },
        }
    )
    the_rest_goes_on(world)
    broken = world.store.get(world.store.kind("karpenter.sh/v1alpha5", "Provisioner"), "broken")
    ready = condition(broken, "Ready")
    assert ready["status"] == "False"
    for part in ("spec.requirements[0].operator", '"Is"', "NotIn"):
        assert part in ready["message"]
    assert any('"Is"' in message for message in events_on(world, "broken"))


def test_a_template_whose_selector_matches_no_subnet_is_reported_and_its_pool_is_not_used(spot_default: World) -> None:
    world = spot_default
    template = {
        "apiVersion": "karpenter.k8s.aws/v1alpha1",
        "kind": "AWSNodeTemplate",
        "metadata": {"name": "lost"},
        "spec": {
            "subnetSelector": {"karpenter.sh/discovery": "nowhere"},
            "securityGroupSelector": {"karpenter.sh/discovery": world.cluster},
        },
    }
    pool = {
        "apiVersion": "karpenter.sh/v1alpha5",
        "kind": "Provisioner",
        "metadata": {"name": "lost"},
        "spec": {"providerRef": {"name": "lost"}, "weight": 100, "requirements": []},
    }
    world.apply([template, pool])
    the_rest_goes_on(world)
    stored = world.store.get(world.store.kind("karpenter.k8s.aws/v1alpha1", "AWSNodeTemplate"), "lost")
    subnets = condition(stored, "SubnetsReady")
    assert subnets["status"] == "False"
    assert "subnetSelector" in subnets["message"]
    assert "nowhere" in subnets["message"]
    unusable = world.store.get(world.store.kind("karpenter.sh/v1alpha5", "Provisioner"), "lost")
    assert condition(unusable, "NodeClassReady")["status"] == "False"
    assert {n["metadata"]["labels"]["karpenter.sh/nodepool"] for n in world.nodes()} == {"default"}


@pytest.mark.flow
def test_a_pod_that_requests_a_thousand_cpus_gets_an_event_with_the_reason(spot_default: World) -> None:
    world = spot_default
    world.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "huge"},
            "spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1000"}}}]},
        }
    )
    the_rest_goes_on(world)
    messages = events_on(world, "huge")
    assert any("default" in message and "cpu" in message for message in messages), messages


@pytest.mark.flow
@pytest.mark.parametrize("queue", ["provisioning", "termination", "disruption", "interruption"])
def test_garbage_on_a_queue_ends_in_its_dead_letter_queue_with_the_reason(spot_default: World, queue: str) -> None:
    world = spot_default
    world.send_malformed_message(queue)
    the_rest_goes_on(world)
    (letter,) = world.dead_letters()
    assert queue in letter.queue.lower()
    assert letter.body == "{not a hint"
    assert letter.attributes["reason"]


def test_a_hint_for_another_cluster_is_refused(spot_default: World) -> None:
    world = spot_default
    world.send_malformed_message(
        "termination",
        '{"source": "tenon.relay", "detail-type": "Nodes Deleting", "detail": {"cluster": "other", "keys": ["x"]}}',
    )
    the_rest_goes_on(world)
    (letter,) = world.dead_letters()
    assert "other" in letter.attributes["reason"]


def test_a_job_and_a_deployment_with_resource_claims_get_events_and_no_node(spot_default: World) -> None:
    world = spot_default
    claims = [{"name": "tpu", "resourceClaimTemplateName": "two-tpus"}]
    container = {"name": "train", "image": "x", "resources": {"requests": {"cpu": "2"}, "claims": [{"name": "tpu"}]}}
    world.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {
                "completions": 2,
                "parallelism": 2,
                "template": {"spec": {"containers": [container], "restartPolicy": "Never", "resourceClaims": claims}},
            },
        }
    )
    world.apply(sample_objects.deployment("serve", 3, {"cpu": "900m"}, resourceClaims=claims))
    world.run_for(timedelta(minutes=3))
    assert world.nodes() == []
    the_rest_goes_on(world)
    world.run_for(timedelta(minutes=2))
    waiting = [p for p in world.pods(phase="Pending") if p["spec"].get("resourceClaims")]
    assert len(waiting) == 5
    for pod in waiting:
        assert any("spec.resourceClaims" in message for message in events_on(world, pod["metadata"]["name"]))
    inflate = sum(1 for p in world.pods(phase="Running") if p["metadata"]["labels"].get("app") == "inflate")
    assert (inflate, len(world.nodes())) == (2, 1)
