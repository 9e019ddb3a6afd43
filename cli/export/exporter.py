"""The export of one cluster: its sources, and the samples of all of them.

The Kubernetes API, the catalog and CloudWatch are read apart from each other, so that without rights on one of them the
metrics of the others are still there.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING

from cli.cluster import live_reader
from cli.export import cost_samples, families, node_metrics, pod_metrics, pool_metrics
from cli.export.cloudwatch import CloudWatchMetrics
from cli.export.cluster_reader import ClusterReader
from cli.export.exposition import Exposition, sample
from cli.export.observed_changes import ObservedChanges
from cli.export.observed_ends import ObservedEnds
from cli.export.observed_reboots import ObservedReboots
from cli.export.polling import NotDeployedError, Poller, poll_until
from shared.base import aws, runtime
from shared.base.struct import Struct
from shared.instance_types import catalog_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from cli.cluster.cluster_reference import ClusterReference
    from cli.cluster.live_reader import Deployment
    from cli.export.exposition import Sample
    from shared.instance_types.catalog import InstanceTypeCatalog
    from shared.snapshot import Snapshot

_CATALOG_INTERVAL = 300.0


class ExportOptions(Struct, kw_only=True):
    """Intervals are in seconds. ``cloudwatch_interval`` None: CloudWatch is not read.

    ``by_pod``: with a sample for each pod. ``all_offerings``: with prices that no node has.
    ``cost_label``: the label of pods by whose value costs are split, in addition to the namespace.
    """

    interval: float = 30.0
    cloudwatch_interval: float | None = 300.0
    by_pod: bool = True
    cost_label: str = ""
    all_offerings: bool = False


class Exporter:
    """Reads the sources, and has their samples."""

    def __init__(
        self,
        reference: ClusterReference,
        options: ExportOptions,
        *,
        version: str,
        log: Callable[[str], None],
    ) -> None:
        self._reference = reference
        self._options = options
        self._version = version
        self._now = runtime.current().now  # requests are answered in threads without this context
        self._cluster = ClusterReader(reference)
        self._changes = ObservedChanges()
        self._reboots = ObservedReboots()
        self._ends = ObservedEnds()
        self._catalog: InstanceTypeCatalog | None = None
        self._snapshot: Snapshot | None = None
        self._cloudwatch = CloudWatchMetrics(reference.cluster)
        self.cluster = Poller(families.CLUSTER, self._read_cluster, interval=options.interval, log=log)
        self._aws = [Poller(families.CATALOG, self._read_catalog, interval=_CATALOG_INTERVAL, log=log)]
        if options.cloudwatch_interval is not None:
            self._aws.append(
                Poller(families.CLOUDWATCH, self._read_cloudwatch, interval=options.cloudwatch_interval, log=log)
            )

    def connect(self) -> None:
        """Check that there is a kubeconfig; the cluster needn't be reachable.

        Raises:
            KubeconfigError: there is none, or it can't be used.
        """
        self._cluster.connect()

    @property
    def exposition(self) -> Exposition:
        """All samples, as a collector."""
        return Exposition(self.samples)

    def stuck(self) -> list[str]:
        """The sources whose read doesn't end; only a restart helps."""
        return [poller.name for poller in (self.cluster, *self._aws) if poller.is_stuck()]

    def poll(self) -> None:
        """Read every source once."""
        for poller in (*self._aws, self.cluster):
            poller.poll()

    def start(self, stop: threading.Event) -> None:
        """Read the sources in the background until the event is set.

        boto3 doesn't make clients in two threads at once, so AWS has one thread.
        """
        for pollers in ([self.cluster], self._aws):
            run = contextvars.copy_context().run
            threading.Thread(target=run, args=(poll_until, stop, pollers), daemon=True).start()

    def samples(self, *, with_running: bool = True) -> Iterator[Sample]:
        """All samples now; without counters that only a running process has, if ``with_running`` is False."""
        now = self._now()
        yield sample(families.BUILD, 1, version=self._version, cluster=self._reference.cluster)
        for poller in (self.cluster, *self._aws):
            yield from (s for s in poller.samples(now) if with_running or not s.family.running)
        yield sample(families.REQUESTED, self._cloudwatch.requested)

    def _read_cluster(self, now: datetime) -> Iterator[Sample]:
        state = self._cluster.read(now)
        self._changes.observe(state.snapshot)
        self._reboots.observe(state.snapshot.node_claims)
        self._ends.observe(state.snapshot)
        catalog = self._catalog
        table = node_metrics.table(state.snapshot, catalog)
        yield from node_metrics.samples(state.snapshot, table)
        yield from pool_metrics.samples(state)
        yield from pod_metrics.samples(state.snapshot, by_pod=self._options.by_pod)
        yield from self._changes.samples()
        yield from self._reboots.samples()
        yield from self._ends.samples()
        if catalog is not None:
            yield from node_metrics.price_samples(table, catalog, all_offerings=self._options.all_offerings)
            yield from cost_samples.samples(table.rows, state.snapshot.pods, label=self._options.cost_label)

    def _read_catalog(self, _now: datetime) -> tuple[Sample, ...]:
        """Keep the catalog; nodes are priced whenever the cluster is read."""
        self._catalog = catalog_store.load(aws.s3(), self._deployment().bucket, max_age=None)
        return ()

    def _read_cloudwatch(self, now: datetime) -> list[Sample]:
        return self._cloudwatch.read(self._deployment(), now)

    def _deployment(self) -> Deployment:
        deployment = live_reader.find_deployment(self._reference.cluster)
        if deployment is None:
            raise NotDeployedError(
                f"Tenon isn't deployed for cluster {self._reference.cluster} in this account and Region"
            )
        return deployment
