"""Tests on a real control plane, in real time: only ``make test-real`` runs them, and skips them where it can't."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.kubelets.behavior import Timing
from local.real import binary
from local.real.cluster import RealControlPlane, kubernetes_version
from local.real.go_build import go
from local.real.placements import Placements
from local.world import Options, World, sample_objects
from tests.real.control_planes import scheduler
from tests.real.differential.replay import replay

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.real.scheduling import RealCluster

BOOT = Timing(boot=(4.0, 6.0), ready=(1.0, 2.0), pull=(0.5, 1.0))
"""Machines are Ready 5 to 8 s after their launch."""
MINORS: tuple[str, ...] = tuple(os.environ.get("TENON_TEST_KUBERNETES", "").split()) or binary.MINORS
if os.environ.get("TENON_TEST_KUBECONFIG"):
    MINORS = MINORS[:1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, so that no other target runs it."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(folder):
            item.add_marker(pytest.mark.real)


@pytest.fixture(scope="session")
def kubeconfig() -> Path | None:
    """The kubeconfig of the throw-away cluster to test on; None: a control plane of our own, built by Go."""
    path = os.environ.get("TENON_TEST_KUBECONFIG")
    if path:
        return Path(path)
    if not go():
        pytest.skip("needs Go to build a control plane, or `make test-real KUBECONFIG=…` with a throw-away cluster")
    return None


@pytest.fixture(scope="session", params=MINORS)
def kubernetes(request: pytest.FixtureRequest, kubeconfig: Path | None) -> str:
    """The minor of Kubernetes that the control plane has."""
    return kubernetes_version(kubeconfig) if kubeconfig is not None else str(request.param)


@pytest.fixture
def embedded_version(kubeconfig: Path | None, kubernetes: str) -> str:
    """The minor of a control plane that the embedded API server has to answer like."""
    if kubeconfig is not None:
        pytest.skip("needs an API server of its own, without controllers")
    if kubernetes != binary.EMBEDDED:
        pytest.skip(f"the embedded API server is that of {binary.EMBEDDED}")
    return kubernetes


@pytest.fixture(scope="module")
def real(kubeconfig: Path | None, kubernetes: str) -> Iterator[RealCluster]:
    """A cluster with a real scheduler, for problems that the embedded one solves, too."""
    if kubeconfig is not None:
        pytest.skip("the scheduler of that cluster may have another version and profile")
    with scheduler(kubernetes) as cluster:
        yield cluster


@pytest.fixture
def control_plane(kubeconfig: Path | None, kubernetes: str) -> RealControlPlane:
    """The control plane of the world; its requests are recorded where the embedded API server has that version."""
    return RealControlPlane(kubeconfig, kubernetes=kubernetes, recorded=kubernetes == binary.EMBEDDED)


@pytest.fixture
def world(control_plane: RealControlPlane, kubernetes: str) -> Iterator[World]:
    """A real control plane with Tenon next to it and a NodePool of spot and on-demand instances.

    Afterwards, no request may have been denied, no invocation may have failed, and no binding may have broken a rule.
    On a control plane of our own with the embedded API server's version, that one must have answered every request in
    the same way.
    """
    options = Options(version=kubernetes, concurrency=8, timing=BOOT, control_plane=lambda: control_plane)
    with World(options=options) as running_world:
        running_world.apply(sample_objects.node_class(running_world))
        requirements = {
            "karpenter.sh/capacity-type": ["spot", "on-demand"],
            "kubernetes.io/arch": ["amd64"],
            "karpenter.k8s.aws/instance-category": ["c", "m", "r"],
        }
        disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "5s"}
        running_world.apply(sample_objects.node_pool(requirements, disruption=disruption))
        placements = Placements(running_world.store, now=running_world.clock.now)
        yield running_world
        assert running_world.failures() == []
        assert running_world.dead_letters() == []
        assert placements.violations() == []
        assert [thread.failures for thread in running_world.kubelets if thread.failures] == []
        recording = control_plane.recording()
    if recording is not None:
        assert replay(recording).texts() == []
