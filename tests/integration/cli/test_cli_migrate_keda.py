"""`tenon migrate keda`: pause pods that KEDA scales by cron triggers become CapacityBuffers, or it says why not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from cli.migrate.scaled_objects import ScaledObject, buffer_objects
from shared.api import capacity_demand
from shared.api.capacity_buffer import CapacityBuffer
from shared.api.decode import decode
from shared.api.validation.capacity_buffer import validate_capacity_buffer
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.cli.command import CommandResult

Json = dict[str, Any]
WORK_DAYS = {"timezone": "Asia/Seoul", "start": "0 9 * * 1-5", "end": "0 18 * * 1-5", "desiredReplicas": "10"}
LUNCH = {"timezone": "Asia/Seoul", "start": "30 11 * * *", "end": "0 13 * * *", "desiredReplicas": "30"}


def cron(metadata: Json = WORK_DAYS, **changes: str) -> Json:
    return {"type": "cron", "metadata": {**metadata, **changes}}


def scaled_object(*triggers: Json, annotations: Json | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "room", "namespace": "ops", "annotations": annotations or {}},
        "spec": {"scaleTargetRef": {"name": "pause"}, "triggers": list(triggers), **spec},
    }


def pause_pods(image: str = "registry.k8s.io/pause:3.10") -> Json:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    spec = {"priorityClassName": "overprovisioning", "nodeSelector": {"type": "web"}, "containers": [container]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "pause", "namespace": "ops"},
        "spec": {"replicas": 0, "template": {"metadata": {"labels": {"app": "pause"}}, "spec": spec}},
    }


def migrate(tmp_path: Path, *objects: Json) -> CommandResult:
    path = tmp_path / "objects.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return call("migrate", "keda", str(path))


def buffer_of(*triggers: Json, **spec: Any) -> CapacityBuffer:
    scaled = decode(scaled_object(*triggers, **spec), ScaledObject)
    _, buffer = buffer_objects(scaled, {"ops/pause": pause_pods()})
    return decode(buffer, CapacityBuffer)


def test_several_windows_in_seoul_become_a_schedule(tmp_path: Path) -> None:
    done = migrate(tmp_path, scaled_object(cron(), cron(LUNCH), minReplicaCount=2), pause_pods())
    assert (done.code, done.err) == (0, "")
    template, buffer = yaml.safe_load_all(done.out)
    assert buffer["metadata"] == {
        "name": "room",
        "namespace": "ops",
        "annotations": {
            "tenon.sh/schedule": "0 9 * * 1-5 until 0 18 * * 1-5 in Asia/Seoul keep 10\n"
            "30 11 * * * until 0 13 * * * in Asia/Seoul",
            "tenon.sh/min-chunks": "2",
        },
    }
    assert buffer["spec"] == {"podTemplateRef": {"name": "room"}, "replicas": 30}
    assert (template["kind"], template["metadata"]) == ("PodTemplate", {"name": "room", "namespace": "ops"})
    pods = pause_pods()["spec"]["template"]
    del pods["spec"]["priorityClassName"]
    assert template["template"] == pods


@pytest.mark.parametrize(
    ("hour", "chunks"),
    [(8, 2), (9, 10), (11, 10), (12, 30), (17, 10), (18, 2)],
)
def test_the_buffer_wants_at_each_hour_what_keda_would_scale_to(hour: int, chunks: int) -> None:
    buffer = buffer_of(cron(), cron(LUNCH), minReplicaCount=2)
    assert not list(validate_capacity_buffer(buffer))
    now = datetime(2026, 11, 26, hour - 9 if hour >= 9 else hour + 15, tzinfo=UTC).replace(day=26 if hour >= 9 else 25)
    windows = capacity_demand.windows(buffer.metadata.annotations["tenon.sh/schedule"])
    wanted = [w.chunks or buffer.spec.replicas or 0 for w in windows if w.is_open(now)]
    assert max(wanted, default=int(buffer.metadata.annotations["tenon.sh/min-chunks"])) == chunks


def test_the_minimum_and_the_maximum_bound_a_window() -> None:
    assert buffer_of(cron(desiredReplicas="500")).spec.replicas == 100  # KEDA's maximum without maxReplicaCount
    assert buffer_of(cron(), maxReplicaCount=6).spec.replicas == 6
    assert buffer_of(cron(desiredReplicas="1"), minReplicaCount=3).metadata.annotations == {"tenon.sh/min-chunks": "3"}
    idle = buffer_of(cron(desiredReplicas="1"), minReplicaCount=3, idleReplicaCount=0)
    assert (idle.spec.replicas, "tenon.sh/min-chunks" in idle.metadata.annotations) == (3, False)


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([scaled_object(cron(), {"type": "prometheus"}), pause_pods()], "trigger 2 is prometheus, not cron"),
        ([scaled_object(), pause_pods()], "it has no trigger"),
        ([scaled_object(cron(timezone="Seoul")), pause_pods()], 'trigger 1: "Seoul" is no time zone'),
        ([scaled_object(cron(end="0 9 * * 1-5")), pause_pods()], "it ends when it begins"),
        ([scaled_object(cron(start="")), pause_pods()], "trigger 1 has no start"),
        ([scaled_object(cron(desiredReplicas="many")), pause_pods()], '"many" is no number'),
        ([scaled_object(cron(desiredReplicas="0")), pause_pods()], "it asks for 0 pods"),
        ([scaled_object(cron())], "Deployment ops/pause isn't in the files"),
        ([scaled_object(cron()), pause_pods("nginx:1")], "pods that work (image nginx:1)"),
        *(
            ([scaled_object(cron(), annotations={f"autoscaling.keda.sh/{name}": value}), pause_pods()], f"sh/{name}\n")
            for name, value in (
                ("paused", "true"),
                ("paused", "yes"),
                ("paused-replicas", "0"),
                ("paused-replicas", "false"),
                ("paused-scale-in", "true"),
                ("paused-scale-out", "1"),
            )
        ),
        (
            [scaled_object(cron(), minReplicaCount=3, idleReplicaCount=3), pause_pods()],
            "idleReplicaCount 3 must be less than minReplicaCount 3",
        ),
        (
            [scaled_object(cron(), idleReplicaCount=0), pause_pods()],
            "idleReplicaCount 0 must be less than minReplicaCount 0",
        ),
        (
            [scaled_object(cron(), minReplicaCount=101), pause_pods()],
            "minReplicaCount 101 is more than maxReplicaCount 100",
        ),
        (
            [scaled_object(cron(), advanced={"scalingModifiers": {"formula": "a + 1"}}), pause_pods()],
            "spec.advanced.scalingModifiers",
        ),
        (
            [scaled_object(cron(), scaleTargetRef={"kind": "StatefulSet", "name": "db"}), pause_pods()],
            "it scales StatefulSet ops/db",
        ),
        ([scaled_object(cron(), minReplicaCount="two"), pause_pods()], "spec.minReplicaCount"),
        ([scaled_object(cron()), {**pause_pods(), "spec": {"template": 5}}], "isn't in the files"),
        ([scaled_object(cron()), {**pause_pods(), "spec": {"template": {"spec": None}}}], "has no containers"),
    ],
)
def test_what_a_buffer_cannot_express_is_named(tmp_path: Path, objects: list[Json], reason: str) -> None:
    fine = scaled_object(cron())
    fine["metadata"]["namespace"] = "shop"
    pods = pause_pods()
    pods["metadata"]["namespace"] = "shop"
    done = migrate(tmp_path, *objects, fine, pods)
    assert done.code == 1
    assert done.err.startswith("left out ScaledObject ops/room: ")
    assert reason in done.err
    assert [o["metadata"]["namespace"] for o in yaml.safe_load_all(done.out)] == ["shop", "shop"]


def test_a_pause_that_is_off_is_none_and_the_minimum_is_0() -> None:
    scaled = decode(scaled_object(cron(), annotations={"autoscaling.keda.sh/paused": "false"}), ScaledObject)
    _, buffer = buffer_objects(scaled, {"ops/pause": pause_pods()})
    assert set(buffer["metadata"]["annotations"]) == {"tenon.sh/schedule"}
    idle = buffer_of(cron(), minReplicaCount=0, idleReplicaCount=0)  # KEDA takes a minimum of 0 for 1 here
    assert "tenon.sh/min-chunks" not in idle.metadata.annotations


def test_what_is_not_carried_over_is_named_in_the_output(tmp_path: Path) -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 600, "policies": []}}
    scaled = scaled_object(
        {**cron(), "metricType": "AverageValue"},
        cooldownPeriod=600,
        pollingInterval=15,
        fallback={"failureThreshold": 3, "replicas": 6},
        advanced={"horizontalPodAutoscalerConfig": {"behavior": behavior}, "newField": 1},
    )
    done = migrate(tmp_path, scaled, pause_pods())
    assert (done.code, done.err) == (0, "")
    fields = [line.split(": ")[1] for line in done.lines if line.startswith("# Not carried over: ")]
    assert fields == [
        "spec.advanced.horizontalPodAutoscalerConfig.behavior",
        "spec.advanced.newField",
        "spec.cooldownPeriod",
        "spec.fallback",
        "spec.pollingInterval",
        "trigger 1, metricType",
    ]
    assert [document["kind"] for document in yaml.safe_load_all(done.out)] == ["PodTemplate", "CapacityBuffer"]


def test_a_field_with_line_breaks_stays_a_comment(tmp_path: Path) -> None:
    scaled = scaled_object(cron())
    scaled["spec"]["a\nkind: Secret"] = 1
    done = migrate(tmp_path, scaled, pause_pods())
    assert "# Not carried over: spec.a kind: Secret: a buffer has no such field." in done.lines


def test_files_without_a_scaled_object_say_what_to_give(tmp_path: Path) -> None:
    done = migrate(tmp_path, pause_pods())
    assert done.code == 2
    assert "kubectl get scaledobjects,deployments -A -o yaml" in done.err
