from __future__ import annotations

from datetime import UTC, datetime, timedelta

from shared.api import labels as names
from shared.api.kubernetes import (
    EphemeralVolumeSource,
    PersistentVolumeClaimSource,
    Pod,
    PodSpec,
    PodStatus,
    Toleration,
    Volume,
)
from shared.api.meta import ObjectMeta, OwnerReference
from shared.api.nodeclaim import NodeClaim, NodeClaimSpec
from shared.api.storage import VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec
from shared.api.taints import DISRUPTED, with_disrupted, without_disrupted
from shared.base.struct import with_fields
from shared.termination.drain import drain_step, termination_deadline

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
DAEMON = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="d", uid="d", controller=True)


def claim(*, grace: str | None = None, deleted: datetime = NOW, annotations: dict[str, str] | None = None) -> NodeClaim:
    return NodeClaim(
        metadata=ObjectMeta(name="default-abcde", deletion_timestamp=deleted, annotations=annotations or {}),
        spec=NodeClaimSpec(termination_grace_period=grace),
    )


def pod(
    name: str,
    *,
    daemon: bool = False,
    priority: str = "",
    grace: int | None = 30,
    deleted: datetime | None = None,
    tolerations: list[Toleration] | None = None,
    annotations: dict[str, str] | None = None,
    phase: str = "Running",
    volumes: list[Volume] | None = None,
    started: datetime | None = None,
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            deletion_timestamp=deleted,
            owner_references=[DAEMON] if daemon else [],
            annotations=annotations or {},
        ),
        spec=PodSpec(
            node_name="n",
            priority_class_name=priority,
            termination_grace_period_seconds=grace,
            tolerations=tolerations or [],
            volumes=volumes or [],
        ),
        status=PodStatus(phase=phase, start_time=started),
    )


def ephemeral(name: str) -> Volume:
    return Volume(name=name, ephemeral=EphemeralVolumeSource())


def evicted(*pods: Pod, at: datetime = NOW, of: NodeClaim | None = None) -> list[str]:
    return sorted(p.metadata.name for p in drain_step(of or claim(), pods, (), {}, now=at).evict)


def test_noncritical_pods_are_evicted_before_daemons_and_critical_pods_last() -> None:
    web, log = pod("web"), pod("log", daemon=True)
    dns = pod("dns", priority="system-cluster-critical")
    cni = pod("cni", daemon=True, priority="system-node-critical")
    assert evicted(web, log, dns, cni) == ["web"]
    assert evicted(log, dns, cni) == ["log"]
    assert evicted(dns, cni) == ["dns"]
    assert evicted(cni) == ["cni"]


def test_the_next_group_waits_until_the_pods_before_it_are_gone() -> None:
    going = pod("web", deleted=NOW - timedelta(seconds=5))
    step = drain_step(claim(), [going, pod("log", daemon=True)], (), {}, now=NOW)
    assert step.evict == ()
    assert not step.terminate
    assert "default/log" in step.waiting_for


def test_pods_that_cannot_be_drained_are_ignored() -> None:
    everything = [Toleration(operator="Exists")]
    static = pod("owned")
    node = OwnerReference(api_version="v1", kind="Node", name="n", uid="n")
    not_drained = (
        pod("static", annotations={names.MIRROR_POD: "x"}),
        with_fields(static, metadata=with_fields(static.metadata, owner_references=[node])),
        pod("agent", daemon=True, tolerations=everything),
        pod("done", phase="Succeeded"),
        pod("stuck", deleted=NOW - timedelta(minutes=2)),
    )
    step = drain_step(claim(), not_drained, (), {}, now=NOW)
    assert step.drained
    assert step.terminate


def test_a_do_not_disrupt_pod_is_waited_for_and_daemons_stay_as_long() -> None:
    kept, web, log = pod("kept", annotations={names.DO_NOT_DISRUPT: "true"}), pod("web"), pod("log", daemon=True)
    step = drain_step(claim(), [kept, web, log], (), {}, now=NOW)
    assert step.evict == (web,)
    assert step.protected == (kept,)
    alone = drain_step(claim(), [kept, log], (), {}, now=NOW)
    assert (alone.evict, alone.protected, alone.terminate, alone.requeue_by) == ((), (kept,), False, None)
    assert "default/kept" in alone.waiting_for


def test_a_pod_is_evicted_and_requeued_when_its_do_not_disrupt_duration_ends() -> None:
    kept = pod("kept", annotations={names.DO_NOT_DISRUPT: "1h"}, started=NOW - timedelta(minutes=50))
    step = drain_step(claim(), [kept], (), {}, now=NOW)
    assert (step.evict, step.protected, step.requeue_by) == ((), (kept,), NOW + timedelta(minutes=10))
    assert evicted(kept, at=NOW + timedelta(minutes=10)) == ["kept"]


def test_the_deadline_overrides_a_pods_protection_and_leaves_it_its_own_grace() -> None:
    kept = pod("kept", annotations={names.DO_NOT_DISRUPT: "true"}, grace=60)
    ec2_short_timeout = claim(grace="10m")
    early = drain_step(ec2_short_timeout, [kept], (), {}, now=NOW)
    assert (early.delete, early.requeue_by) == ((), NOW + timedelta(minutes=9))
    late = drain_step(ec2_short_timeout, [kept], (), {}, now=NOW + timedelta(minutes=9))
    assert (late.delete, late.protected) == (((kept, 60),), ())


def test_an_empty_node_is_terminated_at_once() -> None:
    step = drain_step(claim(), (), (), {}, now=NOW)
    assert step.terminate
    assert step.drained


def test_termination_waits_for_volumes_to_be_detached_except_those_of_pods_that_are_not_drained() -> None:
    def attachment(volume: str) -> VolumeAttachment:
        source = VolumeAttachmentSource(persistent_volume_name=volume)
        return VolumeAttachment(spec=VolumeAttachmentSpec(node_name="n", source=source))

    step = drain_step(claim(), (), [attachment("pv-1")], {}, now=NOW)
    assert step.drained
    assert not step.terminate
    assert "pv-1" in step.waiting_for
    data = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data"))
    agent = pod("agent", tolerations=[Toleration(operator="Exists")], volumes=[data])
    assert drain_step(claim(), [agent], [attachment("pv-1")], {"default/data": "pv-1"}, now=NOW).terminate
    scratch = pod("probe", tolerations=[Toleration(operator="Exists")], volumes=[ephemeral("scratch")])
    attached = [attachment("pv-2"), attachment("pv-3")]
    volumes = {"default/probe-scratch": "pv-2", "default/scratch": "pv-3"}
    assert drain_step(claim(), [scratch], attached[:1], volumes, now=NOW).terminate
    assert "pv-3" in drain_step(claim(), [scratch], attached, volumes, now=NOW).waiting_for


def test_a_termination_grace_period_leaves_each_pod_its_own_grace() -> None:
    ends_soon = claim(grace="10m", deleted=NOW)
    slow, quick = pod("slow", grace=300), pod("quick", grace=10)
    early = drain_step(ends_soon, [slow, quick], (), {}, now=NOW + timedelta(minutes=4))
    assert early.delete == ()
    late = drain_step(ends_soon, [slow, quick], (), {}, now=NOW + timedelta(minutes=5, seconds=1))
    assert [(p.metadata.name, grace) for p, grace in late.delete] == [("slow", 299)]
    assert [p.metadata.name for p in late.evict] == ["quick"]


def test_past_the_deadline_the_instance_is_terminated_with_its_pods() -> None:
    step = drain_step(claim(grace="1m"), [pod("web")], (), {}, now=NOW + timedelta(minutes=1))
    assert [(p.metadata.name, grace) for p, grace in step.delete] == [("web", 0)]
    assert step.terminate


def test_a_valid_termination_timestamp_overrides_the_spec() -> None:
    stamp = (NOW + timedelta(seconds=90)).isoformat()
    assert termination_deadline(claim(grace="1h", annotations={names.TERMINATION_TIMESTAMP: stamp})) == NOW + timedelta(
        seconds=90
    )
    assert termination_deadline(
        claim(grace="1h", annotations={names.TERMINATION_TIMESTAMP: "soon"})
    ) == NOW + timedelta(hours=1)
    assert termination_deadline(claim()) is None


def test_the_disrupted_taint_is_added_once_and_removed() -> None:
    assert with_disrupted(with_disrupted([])) == [DISRUPTED]
    assert without_disrupted([DISRUPTED]) == []
