"""The annotation on a node class that lets its nodes have an older Kubernetes version than the control plane."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared.ami_family.families import is_version_held
from shared.api.meta import Condition, ObjectMeta, condition
from shared.api.nodeclass import AMISelectorTerm, EC2NodeClass, EC2NodeClassSpec
from shared.base.struct import with_fields
from shared.launch.node_class.kubernetes_version import (
    held_version,
    images_version,
    with_held_condition,
)

NOW = datetime(2026, 11, 26, 3, tzinfo=UTC)


def node_class(version: str | None, *terms: AMISelectorTerm) -> EC2NodeClass:
    annotations = {"tenon.sh/kubernetes-version": version} if version is not None else {}
    return EC2NodeClass(
        metadata=ObjectMeta(name="default", annotations=annotations),
        spec=EC2NodeClassSpec(ami_selector_terms=list(terms)),
    )


@pytest.mark.parametrize(
    ("version", "images", "reason", "message"),
    [
        ("1.36", "1.36", "OlderThanControlPlane", "the control plane has 1.37"),
        ("1.34", "1.34", "OlderThanControlPlane", "selects the images of Kubernetes 1.34"),
        ("1.37", "1.37", "ControlPlaneReached", "remove it"),
        ("1.38", "1.37", "NewerThanControlPlane", "nodes may not be newer than the control plane, which has 1.37"),
        ("1.33", "1.37", "TooOld", "3 minor versions older than the control plane, which has 1.37"),
        ("1.36.2", "1.37", "Invalid", 'it must be a minor version, such as "1.36"'),
        ("latest", "1.37", "Invalid", 'annotation tenon.sh/kubernetes-version: "latest" has no effect'),
    ],
)
def test_only_a_version_that_nodes_may_have_is_followed(version: str, images: str, reason: str, message: str) -> None:
    for terms in ((), (AMISelectorTerm(alias="al2023@latest"),), (AMISelectorTerm(alias="bottlerocket@1.50.0"),)):
        annotated = node_class(version, *terms)
        held = held_version(annotated, "1.37")
        assert held is not None
        assert (held.reason, held.is_held) == (reason, images != "1.37")
        assert message in held.message
        assert images_version(annotated, "1.37") == images


def test_without_an_annotation_images_are_those_of_the_control_planes_version() -> None:
    for text in (None, "", " "):
        assert held_version(node_class(text), "1.37") is None
        assert images_version(node_class(text), "1.37") == "1.37"


def test_a_class_that_names_its_images_is_told_that_the_annotation_does_nothing() -> None:
    held = held_version(node_class("1.36", AMISelectorTerm(id="ami-1")), "1.37")
    assert held is not None
    assert held.reason == "ImagesNotByVersion"
    assert "spec.amiSelectorTerms" in held.message


def test_the_condition_stays_until_no_process_remembers_the_newer_control_plane() -> None:
    def next_status(annotation: str | None, control_plane: str, before: list[Condition], now: datetime) -> EC2NodeClass:
        a_class = node_class(annotation)
        conditions = with_held_condition(before, a_class, control_plane, now=now)
        return with_fields(a_class, status=with_fields(a_class.status, conditions=conditions))

    held = next_status("1.36", "1.37", [], NOW)
    assert [(c.status, c.reason) for c in held.status.conditions] == [("True", "OlderThanControlPlane")]
    later = NOW + timedelta(hours=5)
    released = next_status(None, "1.36", held.status.conditions, later)
    assert [(c.status, c.reason) for c in released.status.conditions] == [("False", "Released")]
    assert is_version_held(released)
    soon = next_status(None, "1.36", released.status.conditions, later + timedelta(minutes=15))
    assert condition(soon.status.conditions, "KubernetesVersionHeld") is not None
    gone = next_status(None, "1.36", soon.status.conditions, later + timedelta(minutes=18))
    assert gone.status.conditions == []
    assert not is_version_held(gone)


def test_a_class_that_never_had_the_annotation_gets_no_condition() -> None:
    assert with_held_condition([], node_class(None), "1.37", now=NOW) == []
    assert not is_version_held(node_class(None))
