"""The instance types of a node class: its zones, AMIs and offerings, and discovered capacity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.catalog import entries as catalog_entries
from shared.ami_family.families import family_of
from shared.api import labels
from shared.api.kubernetes import Node, NodeSpec, NodeStatus
from shared.api.meta import ObjectMeta
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodeclass import (
    AMIRequirement,
    AMISelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    EnclaveOptions,
    ResolvedAMI,
)
from shared.base.blobs import MalformedBlobError
from shared.base.struct import with_fields
from shared.instance_types import allocatable
from shared.instance_types.catalog import FORM, Hardware, InstanceTypeCatalog
from shared.instance_types.pricing import estimated_on_demand_price
from shared.instance_types.provider import InstanceTypeCache, build_instance_types, list_instance_types

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType, OfferingKey

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ARM = ResolvedAMI(id="ami-arm", requirements=[AMIRequirement(key=labels.ARCH, operator="In", values=["arm64"])])


def hardware(name: str, arch: str = "amd64", **more: object) -> Hardware:
    fixed = {"vcpus": 2, "memory_mib": 8192, "interfaces": 3, "addresses": 10, "capacity_types": ("on-demand", "spot")}
    return Hardware(name=name, arch=arch, **(fixed | more))  # type: ignore[arg-type]  # the fields of Hardware


RAW = InstanceTypeCatalog(
    region="us-east-1",
    types_at=NOW,
    prices_at=NOW,
    hardware=(hardware("m5.large"), hardware("m6g.large", "arm64"), hardware("p9.large")),
    zones={"a": "az1", "b": "az2"},
    offered={"m5.large": ("a", "b"), "m6g.large": ("a",), "p9.large": ("a",)},
    on_demand={"m5.large": 0.096, "m6g.large": 0.077},
    spot={"m5.large": {"a": 0.03}},
)


def node_class(*images: ResolvedAMI, **spec: object) -> EC2NodeClass:
    return EC2NodeClass(
        metadata=ObjectMeta(name="default"),
        spec=EC2NodeClassSpec(**spec),  # type: ignore[arg-type]  # the fields of the spec
        status=EC2NodeClassStatus(amis=list(images)),
    )


def test_a_class_with_enclaves_has_only_types_that_support_them() -> None:
    raw = with_fields(RAW, hardware=(hardware("m5.large", nitro_enclaves=True), hardware("m6g.large", "arm64")))

    def names(*, enabled: bool) -> list[str]:
        with_options = node_class(enclave_options=EnclaveOptions(enabled=enabled))
        return [t.name for t in build_instance_types(raw, with_options, None, zones={"a"}, unavailable=())]

    assert names(enabled=True) == ["m5.large"]
    assert names(enabled=False) == ["m5.large", "m6g.large"]


@pytest.mark.parametrize(("count", "names"), [(9, ["m5.large", "m6g.large"]), (10, [])])
def test_a_prefix_takes_an_address_of_the_interface_and_the_first_is_its_own(count: int, names: list[str]) -> None:
    with_prefixes = node_class(ip_prefix_count=count)
    types = build_instance_types(RAW, with_prefixes, None, zones={"a"}, unavailable=())
    assert [t.name for t in types] == names
    assert {t.capacity["pods"] for t in types} <= {29}


def test_a_type_is_offered_where_the_class_has_subnets_and_a_price_is_known() -> None:
    types = build_instance_types(RAW, node_class(), None, zones={"a", "c"}, unavailable=())
    assert {t.name: [(o.zone, o.capacity_type) for o in t.offerings] for t in types} == {
        "m5.large": [("a", "on-demand"), ("a", "spot")],
        "m6g.large": [("a", "on-demand")],
    }
    assert types[0].offerings[0].labels == {labels.ZONE_ID: "az1"}


def test_a_warm_process_caches_a_classes_types_until_an_input_changes() -> None:
    cache = InstanceTypeCache()

    def ask(of: EC2NodeClass, raw: InstanceTypeCatalog = RAW, **changed: object) -> tuple[InstanceType, ...]:
        arguments: Any = {"zones": {"a", "b"}, "unavailable": (), "observed_memory": {}} | changed
        return list_instance_types(raw, of, cache=cache, **arguments)

    first = ask(node_class())
    assert ask(node_class()) is first
    assert ask(node_class(), unavailable={("spot", "m5.large", "a")}) != first
    assert ask(node_class(), zones={"b"}) != first
    assert ask(node_class(), observed_memory={"m5.large": 7 << 30}) != first
    assert ask(node_class(ARM)) != first
    assert ask(node_class(kubelet={"maxPods": 5})) != first
    assert ask(node_class(), with_fields(RAW, on_demand={"m5.large": 0.1})) != first
    assert ask(node_class()) == first


def test_another_copy_of_the_catalog_and_sets_of_offerings_that_alternate_give_the_identical_types() -> None:
    cache = InstanceTypeCache()

    def ask(raw: InstanceTypeCatalog, *unavailable: OfferingKey) -> tuple[InstanceType, ...]:
        return list_instance_types(
            raw, node_class(), zones={"a", "b"}, unavailable=unavailable, observed_memory={}, cache=cache
        )

    first, second = ask(RAW), ask(RAW, ("spot", "m5.large", "a"))
    for hours in (1, 2):
        later = FORM.decode(FORM.encode(with_fields(RAW, prices_at=RAW.prices_at + timedelta(hours=hours))))
        assert ask(later) is first
        assert ask(later, ("spot", "m5.large", "a")) is second


@pytest.mark.parametrize(
    "changed",
    [
        {"unavailable": {("spot", "m5.large", "a")}},
        {"observed_memory": {"m5.large": 7 << 30}},
        {"unavailable": {("spot", "m5.large", "a"), ("on-demand", "m5.large", "a"), ("spot", "x9.large", "a")}},
    ],
)
def test_only_types_that_changed_are_built_again(changed: dict[str, Any]) -> None:
    cache = InstanceTypeCache()
    arguments: dict[str, Any] = {"zones": {"a", "b"}, "unavailable": (), "observed_memory": {}}
    before = {t.name: t for t in list_instance_types(RAW, node_class(), cache=cache, **arguments)}
    after = list_instance_types(RAW, node_class(), cache=cache, **arguments | changed)
    assert after == build_instance_types(RAW, node_class(), None, **arguments | changed)
    assert [t.name for t in after if t is not before[t.name]] == ["m5.large"]


def test_an_offering_without_capacity_stays_as_not_available() -> None:
    gone = {("spot", "m5.large", "a")}
    (m5, _) = build_instance_types(RAW, node_class(), None, zones={"a", "b"}, unavailable=gone)
    assert [(o.zone, o.capacity_type) for o in m5.offerings if not o.available] == [("a", "spot")]


def test_only_types_with_an_ami_of_the_class() -> None:
    types = build_instance_types(RAW, node_class(ARM), None, zones={"a"}, unavailable=())
    assert [t.name for t in types] == ["m6g.large"]


def test_windows_runs_on_amd64_and_has_its_build_label() -> None:
    term = AMISelectorTerm(alias="windows2022@latest")
    types = build_instance_types(RAW, node_class(ami_selector_terms=[term]), None, zones={"a"}, unavailable=())
    assert [t.name for t in types] == ["m5.large"]
    assert types[0].labels[labels.OS] == "windows"
    assert types[0].labels[labels.WINDOWS_BUILD] == "10.0.20348"


@pytest.mark.parametrize(
    ("spec", "legacy", "version", "family"),
    [
        ({}, False, "1.32", "AL2"),
        ({}, True, "1.33", "AL2023"),
        ({"ami_family": "AL2"}, True, "1.34", "AL2023"),
        ({"ami_family": "AL2"}, False, "1.34", "AL2"),
        ({"ami_family": "Bottlerocket"}, False, "1.34", "Bottlerocket"),
        ({"ami_selector_terms": [AMISelectorTerm(alias="bottlerocket@1.50")]}, False, "1.34", "Bottlerocket"),
        ({"ami_selector_terms": [AMISelectorTerm(id="ami-1")]}, False, "1.34", "Custom"),
        ({"ami_selector_terms": [AMISelectorTerm(id="ami-1")], "ami_family": "AL2023"}, False, "1.34", "AL2023"),
    ],
)
def test_the_family_of_a_class(spec: dict[str, object], legacy: bool, version: str, family: str) -> None:  # noqa: FBT001 (a column of the table)
    kind = "AWSNodeTemplate" if legacy else "EC2NodeClass"
    node_class = EC2NodeClass(kind=kind, spec=EC2NodeClassSpec(**spec))  # type: ignore[arg-type]  # the fields of the spec
    assert family_of(node_class, version=version).name == family


def test_the_smallest_memory_that_registered_nodes_with_a_current_ami_reported_counts() -> None:
    def pair(name: str, memory: str, image: str, registered: str = "true") -> tuple[Node, NodeClaim]:
        own = {labels.INSTANCE_TYPE: "m6g.large", labels.NODECLASS: "default", labels.REGISTERED: registered}
        node = Node(
            metadata=ObjectMeta(name=name, labels=own),
            spec=NodeSpec(provider_id=f"aws:///a/{name}"),
            status=NodeStatus(capacity={"memory": memory}),
        )
        return node, NodeClaim(status=NodeClaimStatus(provider_id=f"aws:///a/{name}", image_id=image))

    pairs = [
        pair("i-1", "7900Mi", "ami-arm"),
        pair("i-2", "7890Mi", "ami-arm"),
        pair("i-3", "1Gi", "ami-old"),
        pair("i-4", "2Gi", "ami-arm", registered=""),
        pair("i-5", "nonsense", "ami-arm"),
    ]
    observed = allocatable.discovered_memory([n for n, _ in pairs], [c for _, c in pairs], node_class(ARM))
    assert observed == {"m6g.large": 7890 * 2**20}
    (m6g,) = build_instance_types(RAW, node_class(ARM), None, zones={"a"}, unavailable=(), observed_memory=observed)
    assert m6g.capacity["memory"] == 7890 * 2**20


def test_a_catalog_entry_has_resources_labels_and_offerings() -> None:
    entry = catalog_entries.entries(build_instance_types(RAW, node_class(), None, zones={"a"}, unavailable=()))[0]
    assert entry.name == "m5.large"
    assert entry.allocatable["cpu"] == "1930m"
    spot = catalog_entries.OfferingEntry(zone="a", capacity_type="spot", price=0.03, available=True)
    assert entry.offerings[1] == spot
    assert labels.REGION not in entry.labels


def test_a_stored_catalog_is_decoded_unchanged() -> None:
    assert FORM.decode(FORM.encode(RAW)) == RAW


@given(st.binary(max_size=200))
def test_other_bytes_are_rejected(stored: bytes) -> None:
    with pytest.raises(MalformedBlobError):
        FORM.decode(stored)


@pytest.mark.parametrize(
    ("cheaper", "costlier"),
    [
        (hardware("m7g.large", "arm64"), hardware("m5.large")),
        (hardware("m7a.large", cpu_manufacturer="amd"), hardware("m5.large")),
        (hardware("m5.large"), hardware("m5n.large")),
        (hardware("t3.medium", memory_mib=4096), hardware("c5.large", memory_mib=4096)),
        (hardware("c5.large", memory_mib=4096), hardware("m5.large")),
    ],
)
def test_estimated_prices_keep_the_order_of_the_price_list(cheaper: Hardware, costlier: Hardware) -> None:
    assert estimated_on_demand_price(cheaper) < estimated_on_demand_price(costlier)
