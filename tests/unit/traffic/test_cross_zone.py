"""The share of Services' traffic that crosses zones, from where clients and endpoints are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.traffic.cross_zone import USD_PER_CROSSING_TB, ServiceTraffic, cross_zone_traffic, crossing_share
from cli.traffic.placed_pods import PlacedPod, running_pods
from cli.traffic.service import Routing, Service
from shared.api.decode import decode
from shared.api.kubernetes import Node, Pod
from shared.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
ZONE = "topology.kubernetes.io/zone"
BY_ZONE = st.dictionaries(st.sampled_from((A, B, C)), st.integers(1, 500), min_size=1)


def service(name: str = "web", *, annotations: dict[str, str] | None = None, **spec: Any) -> Service:
    metadata = {"name": name, "namespace": "shop", "annotations": annotations or {}}
    return decode({"metadata": metadata, "spec": {"selector": {"app": name}, **spec}}, Service)


def pods(zones: str, app: str = "web", **fields: Any) -> list[PlacedPod]:
    """One pod in each of these zones, by their letters."""
    by_letter = {"a": A, "b": B, "c": C}
    return [PlacedPod(namespace="shop", labels={"app": app, "pod": "x"}, zone=by_letter[z], **fields) for z in zones]


def traffic(service_: Service, placed: Iterable[PlacedPod]) -> ServiceTraffic:
    (only,) = cross_zone_traffic([service_], list(placed)).services
    return only


def test_nothing_crosses_in_a_single_zone() -> None:
    assert traffic(service(), pods("aaa")).share == 0


def test_two_thirds_cross_in_three_even_zones_and_cost_two_cents_a_gb() -> None:
    web = traffic(service(), pods("abcabc"))
    assert web.share == pytest.approx(2 / 3)
    assert web.usd_per_tb == pytest.approx(13.33, abs=0.01)
    assert USD_PER_CROSSING_TB == 20


def test_endpoints_in_one_zone_are_reached_from_the_others() -> None:
    assert traffic(service(), [*pods("aa"), *pods("bbbc", "client")]).share == pytest.approx(4 / 6)


@pytest.mark.parametrize("preference", ["PreferClose", "PreferSameZone", "PreferSameNode"])
def test_traffic_stays_in_the_zone_where_the_service_prefers_it_and_each_zone_has_an_endpoint(preference: str) -> None:
    assert traffic(service(trafficDistribution=preference), [*pods("abc"), *pods("aab", "client")]).share == 0


def test_clients_of_a_zone_without_an_endpoint_cross_though_the_service_prefers_the_zone() -> None:
    web = traffic(service(trafficDistribution="PreferClose"), [*pods("ab"), *pods("cc", "client")])
    assert web.share == pytest.approx(2 / 4)


def test_an_endpoint_that_is_not_ready_keeps_no_traffic_in_its_zone() -> None:
    placed = [*pods("ab"), *pods("c", is_ready=False)]
    web = traffic(service(trafficDistribution="PreferClose"), placed)
    assert web.endpoints == 2
    assert web.share == pytest.approx(1 / 3)
    published = traffic(service(trafficDistribution="PreferClose", publishNotReadyAddresses=True), placed)
    assert (published.endpoints, published.share) == (3, 0)


def test_a_policy_for_the_node_alone_lets_nothing_cross() -> None:
    assert traffic(service(internalTrafficPolicy="Local"), [*pods("a"), *pods("bc", "client")]).share == 0


@pytest.mark.parametrize("name", ["topology-mode", "topology-aware-hints"])
def test_topology_mode_auto_needs_endpoints_in_proportion_to_the_zones(name: str) -> None:
    web = service(annotations={f"service.kubernetes.io/{name}": "Auto"})
    assert web.routing == "TopologyHints"
    assert traffic(web, pods("aaabbbccc")).share == 0
    assert traffic(web, pods("aab") + pods("bcc", "client")).share == pytest.approx(1 / 3), (
        "two zones have what they need"
    )
    two = traffic(web, pods("ab") + pods("c", "client"))
    assert two.share == pytest.approx(2 / 3), "fewer endpoints than zones: no hints, so all alike"


def test_the_annotation_takes_precedence_over_traffic_distribution() -> None:
    annotations = {"service.kubernetes.io/topology-mode": "Auto"}
    assert service(annotations=annotations, trafficDistribution="PreferClose").routing == "TopologyHints"
    assert service(annotations={"service.kubernetes.io/topology-mode": "Disabled"}).routing == "Even"


def test_services_that_kube_proxy_does_not_balance_are_left_out() -> None:
    left_out = [
        service("headless", clusterIP="None", selector={"app": "web"}),
        service("external", type="ExternalName", externalName="example.com"),
        service("kubernetes", selector={}),
        service("nobody"),
        decode({"metadata": {"name": "web", "namespace": "elsewhere"}, "spec": {"selector": {"app": "web"}}}, Service),
    ]
    assert cross_zone_traffic(left_out, pods("abc")).services == ()
    assert cross_zone_traffic(left_out, pods("abc")).share is None


def test_a_selector_with_several_labels_selects_pods_that_have_all() -> None:
    assert traffic(service(selector={"app": "web", "pod": "x"}), pods("ab")).endpoints == 2
    assert cross_zone_traffic([service(selector={"app": "web", "pod": "y"})], pods("ab")).services == ()


def test_daemon_pods_are_endpoints_but_no_clients() -> None:
    agent = traffic(service("agent"), [*pods("abc", "agent", is_client=False), *pods("a", "client")])
    assert agent.endpoints == 3
    assert agent.share == pytest.approx(2 / 3)
    assert cross_zone_traffic([service("agent")], pods("abc", "agent", is_client=False)).services == ()


def test_what_the_same_zone_would_give_and_how_busy_an_endpoint_would_be() -> None:
    web = traffic(service(), [*pods("abb"), *pods("aab", "client")])
    assert web.same_zone_share == 0
    assert web.same_zone_load == pytest.approx(3 / 6 * 3), "half of the clients on a third of the endpoints"
    lone = traffic(service(), [*pods("a"), *pods("bbb", "client")])
    assert lone.same_zone_share == pytest.approx(3 / 4)
    assert lone.same_zone_load == pytest.approx(1)


def test_the_cluster_has_the_share_of_its_endpoints() -> None:
    web, cart = service("web"), service("cart", trafficDistribution="PreferClose")
    shares = cross_zone_traffic([web, cart], [*pods("abc", "web"), *pods("abcabc", "cart")])
    assert [s.service for s in shares.services] == ["shop/cart", "shop/web"]
    assert shares.share == pytest.approx(3 / 9 * 2 / 3)


def test_pods_of_a_snapshot_are_in_the_zones_of_their_nodes() -> None:
    nodes = tuple(decode({"metadata": {"name": z, "labels": {ZONE: z}}}, Node) for z in (A, B))
    nowhere = decode({"metadata": {"name": "nowhere"}}, Node)
    ready = [{"type": "Ready", "status": "True"}]
    states: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        (A, {}, {"phase": "Running", "conditions": ready}),
        (B, {}, {"phase": "Running"}),
        (A, {}, {"phase": "Succeeded", "conditions": ready}),
        (A, {"deletionTimestamp": "2026-05-01T00:00:00Z"}, {"phase": "Running", "conditions": ready}),
        ("nowhere", {}, {"phase": "Running", "conditions": ready}),
        ("", {}, {"phase": "Pending"}),
    ]
    listed = tuple(
        decode({"metadata": {"name": f"p{i}", **metadata}, "spec": {"nodeName": node}, "status": status}, Pod)
        for i, (node, metadata, status) in enumerate(states)
    )
    snapshot = Snapshot(taken_at=datetime(2026, 5, 1, tzinfo=UTC), nodes=(*nodes, nowhere), pods=listed)
    assert [(p.zone, p.is_ready) for p in running_pods(snapshot)] == [(A, True), (B, False)]


@given(routing=st.sampled_from(get_args(Routing)), clients=BY_ZONE, endpoints=BY_ZONE)
def test_the_share_is_between_none_and_all(
    routing: Routing, clients: dict[str, int], endpoints: dict[str, int]
) -> None:
    share = crossing_share(routing, clients, endpoints)
    assert 0 <= share <= 1
    assert crossing_share("SameZone", clients, endpoints) <= crossing_share("Even", clients, endpoints)


@given(by_zone=BY_ZONE)
def test_evenly_called_endpoints_next_to_their_clients_cross_by_the_sum_of_squares(by_zone: dict[str, int]) -> None:
    total = sum(by_zone.values())
    expected = 1 - sum((n / total) ** 2 for n in by_zone.values())
    assert crossing_share("Even", by_zone, by_zone) == pytest.approx(expected)
