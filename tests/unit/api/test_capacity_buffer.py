"""CapacityBuffers are validated in the user's terms."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shared.api.capacity_buffer import ACTIVE_CAPACITY, CapacityBuffer
from shared.api.validation.capacity_buffer import validate_capacity_buffer

WEB = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}


def buffer(**spec: object) -> CapacityBuffer:
    raw = {"metadata": {"name": "warm", "namespace": "shop"}, "spec": spec}
    return msgspec.convert(raw, CapacityBuffer)


@pytest.mark.parametrize(
    "spec",
    [
        {"podTemplateRef": {"name": "web"}, "replicas": 5},
        {"podTemplateRef": {"name": "web"}, "limits": {"cpu": "4"}},
        {"scalableRef": WEB, "percentage": 20},
        {"scalableRef": {**WEB, "apiGroup": ""}, "replicas": 0},
    ],
)
def test_these_buffers_are_valid(spec: dict[str, Any]) -> None:
    assert list(validate_capacity_buffer(buffer(**spec))) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"replicas": 1}, "spec.podTemplateRef, spec.scalableRef: are missing; one of them is needed"),
        (
            {"podTemplateRef": {"name": "web"}, "scalableRef": WEB, "replicas": 1},
            "spec.podTemplateRef, spec.scalableRef: both are given; allowed is one of them",
        ),
        (
            {"scalableRef": {**WEB, "kind": "Job"}, "replicas": 1},
            'spec.scalableRef.kind: "Job" is not supported; allowed are Deployment, StatefulSet, ReplicaSet',
        ),
        (
            {"scalableRef": {**WEB, "apiGroup": "argoproj.io"}, "replicas": 1},
            'spec.scalableRef.apiGroup: "argoproj.io" is not supported; allowed is apps',
        ),
        (
            {"podTemplateRef": {"name": "web"}, "replicas": 1, "percentage": 20},
            "spec.percentage: needs spec.scalableRef, because a PodTemplate has no replicas",
        ),
        ({"podTemplateRef": {"name": "web"}}, "spec.replicas, spec.limits: are missing; one of them is needed"),
        ({"scalableRef": WEB}, "spec.replicas, spec.percentage, spec.limits: are missing; one of them is needed"),
        ({"scalableRef": WEB, "replicas": -1}, "spec.replicas: -1 is not allowed; allowed is 0 or more"),
    ],
)
def test_a_problem_names_the_field_and_what_is_allowed(spec: dict[str, Any], problem: str) -> None:
    assert list(validate_capacity_buffer(buffer(**spec))) == [problem]


def test_only_active_capacity_is_provided() -> None:
    assert buffer(replicas=1).spec.provisioning_strategy == ACTIVE_CAPACITY
    assert buffer(replicas=1).is_active
    assert not buffer(replicas=1, provisioningStrategy="buffer.x-k8s.io/static-capacity").is_active
