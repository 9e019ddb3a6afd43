"""A mutating admission webhook changes Tenon's objects whenever they are written: no fight, and no endless buying."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from local.world import sample_objects
from tests.e2e.cluster_incidents.small_pool import REQUIREMENTS, web
from tests.e2e.world_state import running

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.kubernetes.kinds import Kind
    from local.kubernetes.objects import Obj
    from local.world import World

MINUTE = timedelta(minutes=1)


def adds(kind: Kind, obj: Obj) -> Obj:
    """Adds a label, an annotation and a finalizer to NodeClaims and nodes, as policy engines do."""
    if kind.kind not in {"NodeClaim", "Node"} or "deletionTimestamp" in obj["metadata"]:
        return obj
    metadata = obj["metadata"]
    added = {
        "labels": {**metadata.get("labels", {}), "example.com/cost-center": "42"},
        "annotations": {**metadata.get("annotations", {}), "example.com/seen": "yes"},
        "finalizers": sorted({*metadata.get("finalizers", []), "example.com/guard"}),
    }
    return {**obj, "metadata": {**metadata, **added}}


def removes(kind: Kind, obj: Obj) -> Obj:
    """Removes what isn't on its list: our annotations, and the labels of registration."""
    if kind.kind not in {"NodeClaim", "Node"}:
        return obj
    metadata = obj["metadata"]
    labels = {k: v for k, v in metadata.get("labels", {}).items() if k != "karpenter.sh/registered"}
    annotations = {k: v for k, v in metadata.get("annotations", {}).items() if not k.startswith("tenon.sh/")}
    return {**obj, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def changes_requirements(kind: Kind, obj: Obj) -> Obj:
    """Lets NodeClaims ask for another instance type than their NodePool allows."""
    if kind.kind != "NodeClaim":
        return obj
    key = "node.kubernetes.io/instance-type"
    requirements = [r if r["key"] != key else {**r, "values": ["m5.xlarge"]} for r in obj["spec"]["requirements"]]
    return {**obj, "spec": {**obj["spec"], "requirements": requirements}}


@pytest.mark.parametrize("mutate", [adds, removes, changes_requirements])
def test_pods_run_and_writes_and_launches_end(world: World, mutate: Callable[[Kind, Obj], Obj]) -> None:
    world.store.mutate = mutate
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(REQUIREMENTS, disruption=disruption)])
    world.apply(web(3))
    world.run_until(lambda: len(running(world, "web")) == 3)
    world.run_for(5 * MINUTE)
    writes = Counter[str]()
    world.store.subscribe(lambda change: writes.update([change.kind.kind]))
    world.run_for(10 * MINUTE)
    assert len(world.aws.instances.all) == 3
    assert len(running(world, "web")) == 3
    # At most what each of the sweeps repairs, once for each of the three nodes.
    assert writes["Node"] <= 3 * 2 * 11
    assert writes["NodeClaim"] <= 3 * 2 * 11
    assert world.failures() == []
