"""Equal parts of pods become one object, and no pod says anything else than before."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from bench.stub_objects import pod
from shared.api.kubernetes import Pod
from shared.base.struct import with_fields
from shared.cluster.watched_objects import READ_CONDITIONS, ValueSharing

ROOT = Path(__file__).parents[3]


def decoded(number: int, **spec: Any) -> Pod:
    obj = pod(number, nodes=10)
    obj["spec"].update(spec)
    return msgspec.json.decode(json.dumps(obj).encode(), type=Pod)


def test_pods_of_a_template_share_all_but_their_names_and_times() -> None:
    first, second = pods = [decoded(1), decoded(12)]
    ValueSharing().share(pods)
    assert first.metadata.name != second.metadata.name
    assert first.spec.node_name != second.spec.node_name
    for part in ("labels", "annotations", "finalizers", "owner_references", "namespace"):
        assert getattr(first.metadata, part) is getattr(second.metadata, part)
    for part in ("containers", "tolerations", "node_selector", "topology_spread_constraints", "volumes"):
        assert getattr(first.spec, part) is getattr(second.spec, part)


def test_a_shared_pod_says_what_it_said() -> None:
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 2, "preference": {}}]}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-1"}}, {"name": "scratch", "emptyDir": {}}]
    unlike = {"affinity": affinity, "volumes": volumes, "priority": 5, "nodeSelector": {"team": "a"}, "overhead": {}}
    specs: list[dict[str, Any]] = [{}, unlike, {"tolerations": []}, {}, unlike, {"nodeName": ""}]
    before = [decoded(i, **spec) for i, spec in enumerate(specs)]
    after = [decoded(i, **spec) for i, spec in enumerate(specs)]
    ValueSharing().share(after)
    assert [p.metadata for p in after] == [p.metadata for p in before]
    for shared, whole in zip(after, before, strict=True):
        volumes_that_tie = [v for v in whole.spec.volumes if v.ties_to_nodes]
        assert shared.spec == with_fields(whole.spec, volumes=volumes_that_tie)
        read = [c for c in whole.status.conditions if c.type in READ_CONDITIONS]
        assert shared.status == with_fields(whole.status, conditions=read)


def test_a_token_volume_and_a_condition_that_nobody_reads_are_dropped() -> None:
    token = {"name": "kube-api-access-x7k2p", "projected": {"sources": []}}
    first, second = pods = [
        decoded(1, volumes=[token]),
        decoded(2, volumes=[{**token, "name": "kube-api-access-b"}]),
    ]
    ValueSharing().share(pods)
    assert first.spec.volumes == []
    assert first.spec.containers is second.spec.containers
    assert [c.type for c in first.status.conditions] == ["Ready", "PodScheduled"]


def test_every_condition_of_a_pod_that_is_read_is_kept() -> None:
    """Reads are ``condition(pod.status.conditions, "Ready")`` or ``is_true(…)``, with the type or a constant of it."""
    reading = re.compile(r"(?:condition|is_true)\(\s*\w*(?:pod|p|candidate)\.status\.conditions, (\"?\w+\"?)\)")
    read = {
        name.strip('"')
        for folder in ("shared", "functions", "cli")
        for path in (ROOT / folder).rglob("*.py")
        for name in reading.findall(path.read_text(encoding="utf-8"))
    }
    assert read >= {"PodScheduled", "Ready", "RESIZE_PENDING"}
    constants = {"RESIZE_PENDING": "PodResizePending", "_READY": "Ready"}
    assert {constants.get(name, name) for name in read} <= READ_CONDITIONS
