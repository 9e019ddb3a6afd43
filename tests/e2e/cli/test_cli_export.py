"""`tenon export` in the local world: what a scrape has while nodes come, pods wait, and nodes go."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from cli.cluster import live_reader
from cli.cluster.cluster_reference import ClusterReference
from cli.export import dashboard, families, rules
from cli.export.exporter import Exporter, ExportOptions
from cli.export.server import serve
from local.faults import Fault
from local.world import World
from shared.base import metrics, runtime
from tests.e2e.cli.conftest import CLUSTER
from tests.e2e.conftest import _load
from tests.integration.cli.export_process import Scrape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.flow

HUGE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "huge", "namespace": "default"},
    "spec": {"containers": [{"name": "c", "image": "example/c:1", "resources": {"requests": {"cpu": "10000"}}}]},
}
MINUTE = timedelta(minutes=1)


@contextlib.contextmanager
def exporter_of(world: World, kubeconfig: Path, **options: Any) -> Iterator[Exporter]:
    """An export of the world, on the world's clock."""
    kubeconfig.write_text(world.kubectl_config())
    reference = ClusterReference(cluster=CLUSTER)
    in_shell = runtime.Runtime(environ=os.environ, now=world.clock.now, sleep=world.clock.sleep)
    with pytest.MonkeyPatch.context() as patch, runtime.using(in_shell), live_reader.read_only_aws(reference):
        patch.setenv("KUBECONFIG", str(kubeconfig))
        yield Exporter(reference, ExportOptions(**options), version="1.2.3", log=print)


@contextlib.contextmanager
def served(exporter: Exporter) -> Iterator[str]:
    with serve(exporter.exposition, address="127.0.0.1", port=0) as url:
        yield url


def put(metric: metrics.Metric, *values: float, world: World, ago: timedelta = MINUTE) -> None:
    """Write values as the function's log lines do."""
    boto3.client("cloudwatch").put_metric_data(
        Namespace=metrics.NAMESPACE,
        MetricData=[
            {
                "MetricName": metric.name,
                "Dimensions": [
                    {"Name": metrics.SERVICE, "Value": metric.function},
                    {"Name": metrics.CLUSTER, "Value": CLUSTER},
                ],
                "Timestamp": world.clock.now() - ago,
                "Value": value,
            }
            for value in values
        ],
    )


@dataclass(frozen=True)
class Story:
    """What was scraped: before the first node, with five pods, with one that no node fits, disrupting, afterwards."""

    empty: Scrape
    running: Scrape
    waiting: Scrape
    disrupting: Scrape
    gone: Scrape
    text: Scrape
    actions: frozenset[str]
    """The AWS calls of a read."""

    @property
    def names(self) -> set[str]:
        return self.running.names | self.waiting.names | self.disrupting.names | self.gone.names


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    kubeconfig = tmp_path_factory.mktemp("export") / "kubeconfig"
    manifest = _load("spot-default.yaml")
    name = next(d["metadata"]["name"] for d in manifest if d["kind"] == "Deployment")
    with World(cluster=CLUSTER) as world:
        world.apply(manifest)
        world.run_until_idle()
        for metric, values in {
            metrics.LAUNCHED: (2, 1),
            metrics.DECISION_SECONDS: (0.25, 0.75),
            metrics.UNSCHEDULABLE: (1,),
            metrics.CATALOG_NOT_FROM_AWS: (0,),
        }.items():
            put(metric, *values, world=world)
        with exporter_of(world, kubeconfig) as exporter, served(exporter) as url:
            called: set[str] = set()

            def record(model: Any, **_: object) -> None:
                called.add(f"{model.service_model.service_id.lower()}:{model.name}")

            boto3.DEFAULT_SESSION.events.register("before-call", record)  # type: ignore[union-attr]
            exporter.poll()
            actions = frozenset(called)
            empty = Scrape(url)
            world.scale("default", name, 5)
            world.run_until(lambda: bool(world.claims()))
            exporter.poll()
            world.run_until(lambda: len(world.pods(phase="Running")) >= 5)
            exporter.poll()
            running, text = Scrape(url), Scrape(url, accept="text/plain")
            world.apply(HUGE)
            world.run_for(2 * MINUTE)
            exporter.poll()
            waiting = Scrape(url)
            world.scale("default", name, 0)
            world.run_until(lambda: any(claim["metadata"].get("deletionTimestamp") for claim in world.claims()))
            exporter.poll()
            disrupting = Scrape(url)
            world.run_until(lambda: not world.nodes())
            exporter.poll()
            return Story(empty, running, waiting, disrupting, Scrape(url), text, actions)


def test_both_formats_parse_and_have_the_same_series(story: Story) -> None:
    assert story.running.content_type.startswith("application/openmetrics-text")
    assert story.running.text.endswith("# EOF\n")
    assert story.text.content_type.startswith("text/plain")
    ages = {families.AGE.name}
    assert story.text.names - ages == story.running.names - ages


def test_nodes_pods_and_cost_are_those_of_the_cluster(story: Story) -> None:
    scrape = story.running
    nodes = scrape.total("tenon_nodes", nodepool="default")
    assert nodes >= 1
    (foreign,) = story.empty.values("karpenter_cluster_state_node_count")
    assert scrape.total("karpenter_cluster_state_node_count") == nodes + foreign
    assert scrape.total("tenon_pods", nodepool="default", phase="Running") == 5
    assert len(scrape.values("karpenter_pods_state", phase="Running", nodepool="default")) == 5
    assert scrape.total("karpenter_nodes_total_pod_requests", resource_type="pods", managed="true") == 5
    allocatable = scrape.total("karpenter_nodes_allocatable", resource_type="cpu")
    requested = scrape.total("karpenter_nodes_total_pod_requests", resource_type="cpu")
    assert scrape.values("karpenter_cluster_utilization_percent", resource_type="cpu") == [
        pytest.approx(100 * requested / allocatable)
    ]
    assert scrape.total("karpenter_nodepools_usage", nodepool="default", resource_type="nodes") == nodes
    assert scrape.values("karpenter_nodepools_limit", nodepool="default", resource_type="cpu") == [1000]
    (offering,) = {
        (s.labels["instance_type"], s.labels["zone"], s.labels["capacity_type"])
        for family in scrape.families
        if family.name == "tenon_nodes"
        for s in family.samples
        if s.labels.get("nodepool") == "default"
    }
    labels = dict(zip(("instance_type", "zone", "capacity_type"), offering, strict=True))
    (price,) = scrape.values("karpenter_cloudprovider_instance_type_offering_price_estimate", **labels)
    assert scrape.total("tenon_cost_usd_per_hour", nodepool="default") == pytest.approx(nodes * price)
    assert scrape.values("tenon_nodes_without_price") == [foreign]
    assert story.empty.total("tenon_nodes", nodepool="default") == 0


def test_a_pod_that_no_node_fits_is_pending_with_its_wait(story: Story) -> None:
    assert story.running.values("tenon_pods_pending") == [0]
    assert story.waiting.values("tenon_pods_pending") == [1]
    (oldest,) = story.waiting.values("tenon_pods_pending_oldest_seconds")
    assert 60 <= oldest <= 180
    assert story.waiting.values("karpenter_pods_state", name="huge", phase="Pending") == [1]


def test_launches_and_removals_are_counted_with_karpenters_labels(story: Story) -> None:
    pool = {"nodepool": "default"}
    nodes = story.running.total("tenon_nodes", nodepool="default")
    assert story.empty.values("karpenter_nodeclaims_created_total", **pool) == [0]
    assert story.running.values("karpenter_nodeclaims_created_total", reason="provisioned", **pool) == [nodes]
    assert story.running.values("karpenter_nodes_created_total", **pool) == [nodes]
    assert story.running.values("karpenter_pods_startup_duration_seconds_count") == [5]
    (median,) = story.running.values("karpenter_pods_startup_duration_seconds", quantile="0.5")
    assert 5 < median < 300

    disrupted = story.disrupting.values(
        "karpenter_nodeclaims_disrupted_total", reason="empty", capacity_type="spot", **pool
    )
    assert disrupted
    assert disrupted[0] >= 1
    decisions = story.disrupting.values(
        "karpenter_voluntary_disruption_decisions_total", decision="delete", reason="empty"
    )
    assert decisions[0] >= 1
    assert story.disrupting.total("tenon_nodes", state="deleting") >= 1
    assert story.gone.total("karpenter_nodeclaims_terminated_total", capacity_type="spot", **pool) >= nodes
    assert story.gone.values("karpenter_nodes_terminated_total", **pool)[0] >= nodes
    assert story.gone.total("tenon_cost_usd_per_hour") == 0


def test_the_functions_metrics_come_from_cloudwatch(story: Story) -> None:
    assert story.empty.values("tenon_nodeclaims_launched_total") == [3]
    assert story.empty.values("tenon_nodeclaims_not_launched_total") == [0]
    assert story.empty.values("karpenter_scheduler_scheduling_duration_seconds_sum") == [1]
    assert story.empty.values("karpenter_scheduler_scheduling_duration_seconds_count") == [2]
    assert story.empty.values("karpenter_scheduler_unschedulable_pods_count") == [1]
    assert story.empty.values("tenon_unwell_total") == [0]
    requested = story.empty.total("tenon_export_cloudwatch_metrics_requested_total")
    assert requested == 1 + len(families.FROM_CLOUDWATCH)


def test_every_metric_of_the_list_is_written_and_no_unlisted_one(story: Story) -> None:
    suffixed = {f"{f.name}{s}" for f in families.ALL if f.kind == "summary" for s in ("_sum", "_count")}
    named = {f.name for f in families.ALL}
    # Summaries without quantiles are only a sum and a count.
    names = story.names | story.empty.names
    assert named - names - {name.removesuffix("_count") for name in names} == {
        # only in the hours in which a node goes first; tests/unit/export shows it
        "karpenter_voluntary_disruption_terminate_first_decisions_total",
    }
    assert story.names <= named | suffixed


def test_every_sample_has_only_labels_of_the_list(story: Story) -> None:
    listed = {f.name: {*f.labels} for f in families.ALL}
    for scrape in (story.running, story.waiting, story.disrupting):
        for family in scrape.families:
            for sample in family.samples:
                name = re.sub(r"_(sum|count)$", "", sample.name) if family.type == "summary" else sample.name
                assert sample.labels.keys() <= listed[name], sample


def test_the_dashboard_and_the_rules_name_metrics_that_a_scrape_has(story: Story) -> None:
    expressions = [target["expr"] for panel in dashboard.build()["panels"] for target in panel.get("targets", ())]
    expressions += [rule["expr"] for rule in rules.build()["groups"][0]["rules"]]
    expressions += [variable["query"]["query"] for variable in dashboard.build()["templating"]["list"][1:]]
    names = {name for text in expressions for name in re.findall(r"\b(?:karpenter|operator|tenon)_\w+", text)}
    assert len(names) > 30
    assert names - (story.names | story.empty.names) == set()


def test_the_export_calls_what_its_iam_policy_allows(story: Story) -> None:
    from cli.export import manifests  # noqa: PLC0415 (only here)

    allowed = {statement["Action"] for statement in manifests.iam_policy(CLUSTER)["Statement"]}
    assert story.actions == allowed


def test_without_rights_on_cloudwatch_the_clusters_metrics_still_come(tmp_path: Path) -> None:
    with World(cluster=CLUSTER) as world, exporter_of(world, tmp_path / "k") as exporter, served(exporter) as url:
        world.faults.inject_aws("cloudwatch", "GetMetricData", Fault(code="AccessDenied", status=403), times=100)
        world.faults.inject_aws("s3", "GetObject", Fault(code="AccessDenied", status=403), times=100)
        exporter.poll()
        scrape = Scrape(url)
        assert scrape.values("tenon_export_up", source="cluster") == [1]
        for source in ("cloudwatch", "catalog"):
            assert scrape.values("tenon_export_up", source=source) == [0]
            assert scrape.values("tenon_export_reads_total", source=source, outcome="denied") == [1]
        assert "karpenter_cluster_state_node_count" in scrape.names
        assert "tenon_unwell_total" not in scrape.names
        assert "tenon_cost_usd_per_hour" not in scrape.names

        world.faults.clear()
        exporter.poll()
        scrape = Scrape(url)
        assert [scrape.values("tenon_export_up", source=s) for s in ("cloudwatch", "catalog")] == [[1], [1]]
        assert scrape.values("tenon_unwell_total") == [0]

        # the API server is gone, and comes back
        world.faults.inject_kubernetes("GET", "/", Fault(disconnect="before"), times=1000)
        exporter.cluster.poll()
        scrape = Scrape(url)
        assert scrape.values("tenon_export_up", source="cluster") == [0]
        assert scrape.values("tenon_export_reads_total", source="cluster", outcome="unreachable") == [1]
        assert "karpenter_cluster_state_node_count" in scrape.names  # as it was last read
        world.clock.skip_to(world.clock.now() + timedelta(seconds=exporter.cluster.max_age + 1))
        scrape = Scrape(url)
        assert "karpenter_cluster_state_node_count" not in scrape.names
        assert scrape.values("tenon_export_age_seconds", source="cluster")[0] > exporter.cluster.max_age
        assert scrape.values("tenon_export_up", source="catalog") == [1]
        world.faults.clear()
        exporter.cluster.poll()
        scrape = Scrape(url)
        assert scrape.values("tenon_export_up", source="cluster") == [1]
        assert "karpenter_cluster_state_node_count" in scrape.names
