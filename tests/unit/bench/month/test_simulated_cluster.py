"""A simulated cluster: its bill, its waits and moves are what its nodes and pods say, under the rules of both."""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from bench.month import bill, comparison, html_page, load_generator, price_bound
from bench.month.__main__ import main
from bench.month.bill import NodeSpan
from bench.month.catalog import DEFAULT_POOL, month_catalog
from bench.month.karpenter_rules import KarpenterRules
from bench.month.load_generator import DAY, HOUR
from bench.month.load_trace import Trace, TracePod
from bench.month.simulated_cluster import SimulatedCluster
from bench.month.simulated_objects import Command, Launch, Placement
from bench.month.tenon_rules import TenonRules
from shared.api.quantity import format_resources
from tests.scenarios.karpenter import Karpenter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bench.month.catalog import Catalog
    from bench.month.simulated_cluster import Rules
    from bench.month.simulated_objects import Record, SimulatedNode, SimulatedPod

SPOT = ("spot", "on-demand")
SECONDS = DAY
RULES: dict[str, type[Rules]] = {"tenon": TenonRules, "karpenter": KarpenterRules}


@functools.cache
def _small() -> Trace:
    """A day of three services with a zone spread, tasks and GPUs."""
    services = load_generator.Services(count=3, replicas=6, zone_spread_share=1.0)
    tasks = load_generator.Tasks(an_hour=4, arrays_a_day=2, array=6, duration=3000, spread=1.0)
    with_gpus = load_generator.Tasks(an_hour=1, arrays_a_day=0.5, array=3, duration=2000, spread=1.0, gpus=True)
    rng = random.Random("small 1")  # noqa: S311 (a load, no secrets)
    return load_generator.generate_parts((services, tasks, with_gpus), rng, SECONDS)


@functools.cache
def _record(rules: str) -> Record:
    cluster = SimulatedCluster(_small(), month_catalog(SPOT), RULES[rules](), seed=1, seconds=SECONDS)
    return cluster.run()


@pytest.mark.parametrize("rules", list(RULES))
def test_dollars_are_the_sum_of_each_nodes_hours_at_the_price_of_its_offering(rules: str) -> None:
    record, catalog = _record(rules), month_catalog(SPOT)
    prices = {
        (t.name, o.zone, o.capacity_type): o.price
        for offerings in catalog.offerings.values()
        for t in offerings.types
        for o in t.offerings
    }
    expected = sum(
        prices[s.instance_type, s.zone, s.capacity_type] * (s.terminated - s.launched) / HOUR for s in record.spans
    )
    assert expected > 1
    assert bill.dollars(record.spans, bill.list_price(catalog)) == pytest.approx(expected)


@pytest.mark.parametrize("rules", list(RULES))
def test_every_pod_that_lives_long_enough_gets_a_node_within_a_boot(rules: str) -> None:
    record = _record(rules)
    assert record.unschedulable == 0
    lasting = sum(p.deleted - p.created > 60 and p.created < SECONDS - 60 for p in _small().pods)
    # A pod that is moved while it waits for its first node counts among the moved ones.
    assert 0.99 * lasting <= len(record.waits) <= len(_small().pods)
    assert max(record.waits) <= 60
    assert record.moved == len(record.moved_waits) > 0


@pytest.mark.parametrize("rules", list(RULES))
def test_no_rules_cost_less_than_the_lower_bound(rules: str) -> None:
    catalog = month_catalog(SPOT)
    rates = price_bound.lower_bound(_small(), catalog, seconds=SECONDS)
    spans, price = _record(rules).spans, bill.list_price(catalog)
    assert 0 < sum(rates) * price_bound.STEP / HOUR < bill.dollars(spans, price)
    steps = dict(enumerate(rates))
    for (start, running), (end, _) in zip(changes := bill.changes(spans), [*changes[1:], (SECONDS, {})], strict=True):
        whole = [s for s in range(-(-start // price_bound.STEP), end // price_bound.STEP) if s in steps]
        assert all(steps[s] <= price(running) + 1e-9 for s in whole)


def test_the_same_seed_gives_the_same_month() -> None:
    again = SimulatedCluster(_small(), month_catalog(SPOT), KarpenterRules(), seed=1, seconds=SECONDS).run()
    assert again == _record("karpenter")


class _Script:
    """Puts every pending pod on a node of its own, and consolidates two nodes into one at a time."""

    is_concurrent = False
    interval = 600

    def __init__(self, at: int) -> None:
        self._at = at

    def place(self, _cluster: SimulatedCluster, pods: Sequence[SimulatedPod]) -> Placement:
        return Placement({}, tuple(_node(p.trace.name) for p in pods))

    def empty_nodes(self, _cluster: SimulatedCluster) -> Sequence[str]:
        return ()

    def soft_taints(self, _cluster: SimulatedCluster) -> Sequence[tuple[SimulatedNode, int]]:
        return ()

    def consolidate(self, cluster: SimulatedCluster) -> Command | None:
        if cluster.now != self._at:
            return None
        first, second = sorted(cluster.nodes)[:2]
        return Command((first, second), (_node(*cluster.nodes[first].pods, *cluster.nodes[second].pods),))

    def validated(self, _cluster: SimulatedCluster, command: Command) -> Command | None:
        return command


def _node(*pods: str) -> Launch:
    return Launch("m6i.2xlarge", "us-east-1a", "on-demand", DEFAULT_POOL, pods)


def _pod(name: str, *, created: int = 0, deleted: int = SECONDS, cpu: int = 3000) -> TracePod:
    return TracePod(name=name, cpu=cpu, memory=1024, gpus=0, created=created, deleted=deleted)


def test_pods_on_removed_nodes_are_counted_as_moved_and_those_that_were_deleted_are_not() -> None:
    trace = Trace(pods=(_pod("a"), _pod("b", deleted=615), _pod("c")))
    record = SimulatedCluster(trace, month_catalog(SPOT), _Script(600), seed=1, seconds=3600).run()
    assert record.commands == 1
    assert record.moved == 1  # b ends while the command is validated
    assert Counter(s.terminated == 3600 for s in record.spans) == {True: 2, False: 2}
    # the replacement is ready before the nodes are drained
    replacement = max(record.spans, key=lambda s: s.launched)
    assert all(s.terminated > replacement.launched + 20 for s in record.spans)


def test_a_pod_on_a_ready_node_with_room_waits_for_nothing_and_others_for_a_boot() -> None:
    trace = Trace(pods=(_pod("a"), _pod("late", created=300), _pod("large", created=300, cpu=7000)))
    record = SimulatedCluster(trace, month_catalog(SPOT), _Script(-1), seed=1, seconds=3600).run()
    assert sorted(w > 20 for w in record.waits) == [False, True, True]
    assert min(record.waits) == 0


def test_a_rate_sees_all_nodes_that_run_at_the_same_time() -> None:
    spans = [NodeSpan("m6i.large", "z", "on-demand", 0, 7200), NodeSpan("m6i.large", "z", "on-demand", 3600, 7200)]
    key = ("m6i.large", "z", "on-demand")
    assert bill.changes(spans) == [(0, {key: 1}), (3600, {key: 2}), (7200, {})]
    # one node is committed at 0.6 of its price, used or not; the second hour has one more
    assert bill.dollars(spans, lambda running: 0.6 + max(running[key] - 1, 0)) == pytest.approx(2.2)


def test_a_pod_that_is_too_large_for_every_node_stays_without_one_and_the_others_run() -> None:
    trace = Trace(pods=(_pod("huge", cpu=1_000_000), _pod("a")))
    for rules in RULES.values():
        record = SimulatedCluster(trace, month_catalog(SPOT), rules(), seed=1, seconds=3600).run()
        assert len(record.waits) == 1
        assert record.unschedulable > 0


@pytest.mark.parametrize("seed", range(8))
def test_scheduling_by_karpenters_rules_is_that_of_the_re_enactment(seed: int) -> None:
    """The same nodes for the same pods: the re-enactment is checked against Karpenter's recorded decisions."""
    rng = random.Random(seed)  # noqa: S311 (pods)
    pods = [
        TracePod(name=f"p{i:03d}", cpu=rng.choice((100, 250, 500, 1000, 2000, 3500)),
                 memory=rng.choice((256, 1024, 4096, 12_000)), gpus=0, created=0, deleted=HOUR)
        for i in range(rng.randrange(5, 60))
    ]  # fmt: skip
    catalog = month_catalog(SPOT)
    cluster = SimulatedCluster(Trace(pods=tuple(pods)), catalog, KarpenterRules(), seed=1, seconds=30)
    cluster.run()
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


def test_the_command_writes_loads_and_replays_a_file_into_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, page = tmp_path / "loads", tmp_path / "page.html"
    assert main(["write", str(folder), "--days", "0.1", "--seeds", "7"]) == 0
    files = sorted(folder.iterdir())
    assert [f.name for f in files] == ["batch-7.csv", "gpus-7.csv", "services-7.csv"]
    assert main(["replay", str(files[0]), "--days", "0.1", "--page", str(page)]) == 0
    assert "tenon $" in capsys.readouterr().out
    assert "batch-7.csv" in page.read_text(encoding="utf-8")
    assert main(["replay", str(tmp_path / "none.csv")]) == 1
    assert "none.csv: No such file" in capsys.readouterr().err


def test_the_page_escapes_titles() -> None:
    outcome = comparison.Outcome(
        dollars=1.0, moved=0, wait_p50=0, wait_p99=0, moved_wait_p99=0, nodes=1, launched=1, commands=0, invalid=0,
        processor_seconds=0, cost_by_hour=[1.0], nodes_by_hour=[1.0],
    )  # fmt: skip
    outcomes = {"tenon": outcome, "karpenter": outcome}
    month = comparison.Month(load="batch", seed=1, outcomes=outcomes, bound=[0.5])
    text = html_page.page({"<b>": month})
    assert "&lt;b&gt;" in text
    assert "<b>" not in text.partition("<main>")[2].partition("</main>")[0]
