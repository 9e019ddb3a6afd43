"""Extended resources that drivers of dynamic resource allocation provide."""

from __future__ import annotations

import msgspec
import pytest

from shared.api.dynamic_resources import (
    DeviceClass,
    ResourceSlice,
    has_complete_pool,
    provides,
    with_dynamic_resources,
)
from shared.api.kubernetes import Node, NodeStatus
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus

FPGA = "example.com/fpga"


def slice_of(pool: str, generation: int, slices: int, *, driver: str = "fpga.example.com") -> ResourceSlice:
    spec = {"driver": driver, "pool": {"name": pool, "generation": generation, "resourceSliceCount": slices}}
    return msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)


def test_a_class_provides_the_resource_that_it_names_and_the_one_of_its_own_name() -> None:
    named = msgspec.convert({"metadata": {"name": "fpga"}, "spec": {"extendedResourceName": FPGA}}, DeviceClass)
    unnamed = msgspec.convert({"metadata": {"name": "other"}, "spec": {}}, DeviceClass)
    assert provides([unnamed, named], FPGA)
    assert provides([named], "deviceclass.resource.kubernetes.io/fpga")
    assert not provides([unnamed], FPGA)
    assert not provides([named, unnamed], "cpu")


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([], False),
        ([slice_of("a", 1, 1)], True),
        ([slice_of("a", 1, 2)], False),
        ([slice_of("a", 1, 2)] * 2, True),
        ([slice_of("a", 1, 1), slice_of("a", 2, 2)], False),
        ([slice_of("a", 1, 2), slice_of("a", 1, 2, driver="other"), slice_of("b", 3, 1)], True),
    ],
)
def test_a_pool_is_complete_with_all_slices_of_its_newest_generation(
    slices: list[ResourceSlice], expected: object
) -> None:
    assert has_complete_pool(slices) is expected


def test_a_node_has_what_its_kubelet_reports_and_what_its_drivers_provide() -> None:
    planned: dict[str, str | int | float] = {"cpu": "2", FPGA: "4", "nvidia.com/gpu": "1"}
    claim = NodeClaim(
        metadata=ObjectMeta(annotations={"tenon.sh/dynamic-resources": FPGA}),
        status=NodeClaimStatus(allocatable=planned, capacity=planned),
    )
    node = Node(status=NodeStatus(allocatable={"cpu": "1900m"}, capacity={"cpu": "2"}))
    assert with_dynamic_resources(node, claim).status.allocatable == {"cpu": "1900m", FPGA: "4"}
    assert with_dynamic_resources(node, claim).status.capacity == {"cpu": "2", FPGA: "4"}
    assert with_dynamic_resources(node, NodeClaim()) == node
