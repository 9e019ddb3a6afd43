"""A played cluster: its bill, its waits and moves are what its nodes and pods say, under both rules."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from bench.month import comparison, html_page, load_generator, price_bound, simulated_fleet
from bench.month.catalog import DEFAULT_POOL, month_catalog
from bench.month.karpenter_rules import KarpenterRule
from bench.month.load_generator import DAY, HOUR
from bench.month.load_trace import Trace, TracePod
from bench.month.simulated_cluster import PlayedCluster
from bench.month.simulated_fleet import Command, Launch, NodeSpan, Placement
from bench.month.tenon_rules import TenonRule
from shared.api.quantity import format_resources
from tests.scenarios.karpenter import Karpenter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.month.catalog import Catalog
    from bench.month.simulated_cluster import Rule
    from bench.month.simulated_fleet import Played, PlayedNode, PlayedPod

SPOT = ("spot", "on-demand")
SECONDS = DAY
RULES: dict[str, type[Rule]] = {"tenon": TenonRule, "greedy": KarpenterRule}


@functools.cache
def _small() -> Trace:
    """A day of three services with a zone spread, tasks and GPUs."""
    services = load_generator.Services(count=3, replicas=6, zone_spread_share=1.0)
    tasks = load_generator.Tasks(an_hour=4, arrays_a_day=2, array=6, duration=3000, spread=1.0)
    with_gpus = load_generator.Tasks(an_hour=1, arrays_a_day=0.5, array=3, duration=2000, spread=1.0, gpus=True)
    parts = {"small": (services, tasks, with_gpus)}
    generate = load_generator.generate
    load_generator.LOADS, kept = parts, load_generator.LOADS
    try:
        return generate("small", seed=1, seconds=SECONDS)
    finally:
        load_generator.LOADS = kept


@functools.cache
def _played(rule: str) -> Played:
    cluster = PlayedCluster(_small(), month_catalog(SPOT), RULES[rule](), seed=1, seconds=SECONDS)
    return cluster.play()


@pytest.mark.parametrize("rule", list(RULES))
def test_dollars_are_the_sum_of_each_nodes_hours_at_the_price_of_its_offering(rule: str) -> None:
    played, catalog = _played(rule), month_catalog(SPOT)
    prices = {
        (t.name, o.zone, o.capacity_type): o.price
        for offerings in catalog.offerings.values()
        for t in offerings.types
        for o in t.offerings
    }
    expected = sum(
        prices[s.instance_type, s.zone, s.capacity_type] * (s.terminated - s.launched) / HOUR for s in played.spans
    )
    assert expected > 1
    assert simulated_fleet.dollars(played.spans, simulated_fleet.list_price(catalog)) == pytest.approx(expected)


@pytest.mark.parametrize("rule", list(RULES))
def test_every_pod_that_lives_long_enough_gets_a_node_within_a_boot(rule: str) -> None:
    played = _played(rule)
    assert played.unschedulable == 0
    lasting = sum(p.deleted - p.created > 60 and p.created < SECONDS - 60 for p in _small().pods)
    # A pod that is moved while it waits for its first node counts among the moved ones.
    assert 0.99 * lasting <= len(played.waits) <= len(_small().pods)
    assert max(played.waits) <= 60
    assert played.moved == len(played.moved_waits) > 0


@pytest.mark.parametrize("rule", list(RULES))
def test_no_rule_costs_less_than_the_lower_bound(rule: str) -> None:
    catalog = month_catalog(SPOT)
    rates = price_bound.lower_bound(_small(), catalog, seconds=SECONDS)
    spans, price = _played(rule).spans, simulated_fleet.list_price(catalog)
    assert 0 < price_bound.dollars(rates) < simulated_fleet.dollars(spans, price)
    steps = dict(enumerate(rates))
    for (start, running), (end, _) in zip(
        changes := simulated_fleet.changes(spans), [*changes[1:], (SECONDS, {})], strict=True
    ):
        whole = [s for s in range(-(-start // price_bound.STEP), end // price_bound.STEP) if s in steps]
        assert all(steps[s] <= price(running) + 1e-9 for s in whole)


def test_the_same_seed_gives_the_same_month() -> None:
    again = PlayedCluster(_small(), month_catalog(SPOT), KarpenterRule(), seed=1, seconds=SECONDS).play()
    assert again == _played("greedy")


class _Script:
    """Puts every pending pod on a node of its own, and consolidates two nodes into one at a time."""

    is_concurrent = False
    interval = 600

    def __init__(self, at: int) -> None:
        self._at = at

    def place(self, _cluster: PlayedCluster, pods: Sequence[PlayedPod]) -> Placement:
        return Placement({}, tuple(_node(p.trace.name) for p in pods))

    def empty_nodes(self, _cluster: PlayedCluster) -> Sequence[str]:
        return ()

    def avoided(self, _cluster: PlayedCluster) -> Sequence[PlayedNode]:
        return ()

    def consolidate(self, cluster: PlayedCluster) -> Command | None:
        if cluster.now != self._at:
            return None
        first, second = sorted(cluster.nodes)[:2]
        return Command((first, second), (_node(*cluster.nodes[first].pods, *cluster.nodes[second].pods),))

    def validated(self, _cluster: PlayedCluster, command: Command) -> Command | None:
        return command


def _node(*pods: str) -> Launch:
    return Launch("m6i.2xlarge", "us-east-1a", "on-demand", DEFAULT_POOL, pods)


def _pod(name: str, *, created: int = 0, deleted: int = SECONDS, cpu: int = 3000) -> TracePod:
    return TracePod(name=name, cpu=cpu, memory=1024, gpus=0, created=created, deleted=deleted)


def test_pods_on_removed_nodes_are_counted_as_moved_and_those_that_were_deleted_are_not() -> None:
    trace = Trace(pods=(_pod("a"), _pod("b", deleted=615), _pod("c")))
    played = PlayedCluster(trace, month_catalog(SPOT), _Script(600), seed=1, seconds=3600).play()
    assert played.commands == 1
    assert played.moved == 1  # b ends while the command is validated
    assert Counter(s.terminated == 3600 for s in played.spans) == {True: 2, False: 2}
    # the replacement is ready before the nodes are drained
    replacement = max(played.spans, key=lambda s: s.launched)
    assert all(s.terminated > replacement.launched + 20 for s in played.spans)


def test_a_pod_on_a_ready_node_with_room_waits_for_nothing_and_others_for_a_boot() -> None:
    trace = Trace(pods=(_pod("a"), _pod("late", created=300), _pod("large", created=300, cpu=7000)))
    played = PlayedCluster(trace, month_catalog(SPOT), _Script(-1), seed=1, seconds=3600).play()
    assert sorted(w > 20 for w in played.waits) == [False, True, True]
    assert min(played.waits) == 0


def test_a_rate_sees_all_nodes_that_run_at_the_same_time() -> None:
    spans = [NodeSpan("m6i.large", "z", "on-demand", 0, 7200), NodeSpan("m6i.large", "z", "on-demand", 3600, 7200)]
    key = ("m6i.large", "z", "on-demand")
    assert simulated_fleet.changes(spans) == [(0, {key: 1}), (3600, {key: 2}), (7200, {})]
    # one node is committed at 0.6 of its price, used or not; the second hour has one more
    assert simulated_fleet.dollars(spans, lambda running: 0.6 + max(running[key] - 1, 0)) == pytest.approx(2.2)


def test_a_pod_that_is_too_large_for_every_node_stays_without_one_and_the_others_run() -> None:
    trace = Trace(pods=(_pod("huge", cpu=1_000_000), _pod("a")))
    for rule in RULES.values():
        played = PlayedCluster(trace, month_catalog(SPOT), rule(), seed=1, seconds=3600).play()
        assert len(played.waits) == 1
        assert played.unschedulable > 0


@pytest.mark.parametrize("seed", range(8))
def test_the_rivals_scheduling_is_that_of_the_re_enactment(seed: int) -> None:
    """The same nodes for the same pods: the re-enactment is checked against Karpenter's recorded decisions."""
    rng = random.Random(seed)  # noqa: S311 (pods)
    pods = [
        TracePod(name=f"p{i:03d}", cpu=rng.choice((100, 250, 500, 1000, 2000, 3500)),
                 memory=rng.choice((256, 1024, 4096, 12_000)), gpus=0, created=0, deleted=HOUR)
        for i in range(rng.randrange(5, 60))
    ]  # fmt: skip
    catalog = month_catalog(SPOT)
    cluster = PlayedCluster(Trace(pods=tuple(pods)), catalog, KarpenterRule(), seed=1, seconds=30)
    cluster.play()
    launched = [(n.price, sorted(n.pods)) for n in cluster.nodes.values()]
    claims = Karpenter(_document(pods, catalog)).run()["nodeClaims"]
    expected = [(c["cheapest"]["price"], sorted(key.partition("/")[2] for key in c["pods"])) for c in claims]
    assert sorted(launched) == sorted(expected)


def _document(pods: Sequence[TracePod], catalog: Catalog) -> dict[str, Any]:
    """The pods and the default NodePool as a scenario."""
    objects = [
        {"kind": "NodePool", "metadata": {"name": "default"}, "spec": {"template": {"spec": {"requirements": []}}}},
        *(
            {
                "kind": "Pod",
                "metadata": {"name": p.name, "namespace": "default", "labels": {}},
                "spec": {"containers": [{"resources": {"requests": {"cpu": f"{p.cpu}m", "memory": f"{p.memory}Mi"}}}]},
            }
            for p in pods
        ),
    ]
    types = [
        {
            "name": t.name,
            "arch": "amd64",
            "os": ["linux"],
            "capacity": format_resources({r: t.allocatable[r] for r in ("cpu", "memory", "pods")}),
            "overhead": {},
            "labels": {},
            "offerings": [{"zone": o.zone, "capacityType": o.capacity_type, "price": o.price} for o in t.offerings],
        }
        for t in catalog.offerings[DEFAULT_POOL].types
    ]
    return {"objects": objects, "instanceTypes": types}


def test_the_command_writes_loads_and_plays_a_file_into_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = tmp_path / "loads", tmp_path / "page.html"
    assert comparison.main(["write", str(folder), "--days", "0.1", "--seeds", "7"]) == 0
    files = sorted(folder.iterdir())
    assert [f.name for f in files] == ["batch-7.csv", "gpus-7.csv", "services-7.csv"]
    assert comparison.main(["play", str(files[0]), "--days", "0.1", "--page", str(page)]) == 0
    assert "tenon $" in capsys.readouterr().out
    assert "batch-7.csv" in page.read_text(encoding="utf-8")
    assert comparison.main(["play", str(tmp_path / "none.csv")]) == 1
    assert "none.csv: No such file" in capsys.readouterr().err


def test_the_page_escapes_titles() -> None:
    outcome = comparison.Outcome(
        dollars=1.0, moved=0, wait_p50=0, wait_p99=0, moved_wait_p99=0, nodes=1, launched=1, commands=0, invalid=0,
        processor_seconds=0, cost_by_hour=[1.0], nodes_by_hour=[1.0],
    )  # fmt: skip
    text = html_page.page([html_page.Month("<b>", {"tenon": outcome, "greedy": outcome}, [0.5])])
    assert "&lt;b&gt;" in text
    assert "<b>" not in text.partition("<main>")[2].partition("</main>")[0]
