"""Pending pods become claims, and claims become instances.

Deciding and writing claims happens under the cluster's lease; launching happens outside it, from the claims that
stand there. So a run that died after writing is finished by the next, whatever woke it, and the launch itself is made
repeatable by its ClientToken. Offerings without capacity are remembered and their pods planned again at once without
them.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from shared import aws, hints, host
from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import is_true, to_json, with_condition
from shared.api.quantity import format_resources
from shared.cluster import resources, writes
from shared.cluster.connect import connect, describe
from shared.cluster.events import recorder
from shared.cluster.lease import hold
from shared.cluster.reading import read
from shared.instances import store, unavailable
from shared.instances.store import CatalogMissingError
from shared.launch import supply
from shared.launch.budget import Budget
from shared.launch.fleet import Failed, Launched, LaunchRequest, launch
from shared.lifecycle import claims as claim_making
from shared.lifecycle.registration import with_ready
from shared.scheduling.decision import Problem
from shared.scheduling.schedule import schedule

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from functions.provisioner.settings import ProvisionerSettings
    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.info import ClusterInfo
    from shared.instances.catalog import RawCatalog
    from shared.launch.supply import Supply
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot

ROUNDS = 3
"""Times that pods are planned again in one run when EC2 has no capacity; after that the next hint goes on."""
_TOLD = 100
"""Pods that are told something in one run; the rest is told by the next."""


@dataclass(kw_only=True)
class Report:
    """What a run did, for its log line and metrics."""

    claims_created: int = 0
    launched: list[Launched] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    unschedulable: int = 0

    @property
    def throttled(self) -> bool:
        """Whether EC2 asked to wait: the message should come back."""
        return any(f.kind == "throttled" for f in self.failed)


class Provisioning:
    """One run: the tools it works with, and its steps."""

    def __init__(self, settings: ProvisionerSettings, *, run: str, logger: Logger) -> None:
        self._settings = settings
        self._run = run
        self._logger = logger
        self._client: Client = connect(settings)
        self._recorder = recorder(self._client)

    def run(self) -> Report:
        """Plan and launch, again while capacity is missing somewhere.

        Raises:
            CatalogMissingError: there is nothing to choose from yet; the catalog function has been asked for it.
            LeaseHeldError: another function is deciding.
        """
        report = Report()
        raw = self._catalog()
        cluster = describe(aws.eks(), self._settings.cluster_name)
        for attempt in range(ROUNDS):
            pending, offers = self._decide(raw, cluster, report, attempt)
            results = self._launch(pending, offers, cluster)
            report.launched += [r for r in results if isinstance(r, Launched)]
            failures = [r for r in results if isinstance(r, Failed)]
            report.failed += failures
            if not any(f.kind == "capacity" for f in failures):
                break
        return report

    def _catalog(self) -> RawCatalog:
        try:
            return store.load(aws.s3(), self._settings.catalog_bucket, self._settings.cluster_name, max_age=None)
        except CatalogMissingError:
            missing = hints.entry(
                hints.CATALOG_MISSING,
                cluster=self._settings.cluster_name,
                keys=(),
                time=host.current().now(),
                bus=self._settings.event_bus_name,
            )
            aws.events().put_events(Entries=[missing])
            raise

    def _decide(
        self, raw: RawCatalog, cluster: ClusterInfo, report: Report, attempt: int
    ) -> tuple[tuple[NodeClaim, ...], Supply]:
        """The claims to launch: those that stand there unlaunched, and new ones for pods that have no place."""
        now = host.current().now()
        with hold(
            self._client, cluster=cluster.name, holder=f"provisioner/{self._run}", now=host.current().now
        ) as lease:
            snapshot = read(self._client, now=now)
            offers = self._supply(snapshot, raw, cluster, now)
            decision = schedule(
                Problem(snapshot=snapshot, instance_types=offers.instance_types, not_ready=offers.not_ready)
            )
            lease.check()
            created = self._write(decision, snapshot, offers, attempt)
        report.claims_created += len(created)
        report.unschedulable = len(decision.errors)
        self._tell(decision, snapshot)
        waiting = [c for c in snapshot.node_claims if _is_unlaunched(c)]
        return (*waiting, *created), offers

    def _supply(self, snapshot: Snapshot, raw: RawCatalog, cluster: ClusterInfo, now: datetime) -> Supply:
        return supply.gather(
            snapshot.node_pools,
            snapshot.node_classes,
            raw,
            cluster,
            unavailable=unavailable.current(aws.dynamodb(), self._settings.table_name, now=now),
            default_instance_profile=self._settings.node_instance_profile,
            now=now,
        )

    def _write(self, decision: Decision, snapshot: Snapshot, offers: Supply, attempt: int) -> tuple[NodeClaim, ...]:
        pools = {p.name: p for p in snapshot.node_pools}
        created = []
        for i, planned in enumerate(decision.claims):
            pool = pools[planned.node_pool]
            claim = claim_making.claim_for(
                planned,
                pool,
                offers.node_classes[pool.name],
                decision=f"{self._run}/{attempt}",
                name=f"{pool.name}-{_suffix(self._run, attempt, i)}",
            )
            stored = writes.create(self._client, resources.NODE_CLAIMS, claim)
            created.append(stored)
            self._logger.info(
                "Created a NodeClaim",
                extra={
                    "nodeclaim": stored.name,
                    "nodepool": pool.name,
                    "pods": len(planned.pods),
                    "cheapest": asdict(planned.cheapest),
                    "instance_types": len(planned.instance_types),
                },
            )
        return tuple(created)

    def _launch(
        self, claims: Iterable[NodeClaim], offers: Supply, cluster: ClusterInfo
    ) -> tuple[Launched | Failed, ...]:
        now = host.current().now()
        requests = []
        for claim in claims:
            request = _request(claim, offers)
            if request is None:
                self._logger.warning(
                    "A NodeClaim waits for its NodePool or node class", extra={"nodeclaim": claim.name}
                )
            else:
                requests.append(request)
        if not requests:
            return ()
        by_name = {r.claim.name: r.claim for r in requests}
        budget = Budget(aws.dynamodb(), self._settings.table_name)
        results = launch(requests, cluster=cluster, now=now, budget=budget)
        for result in results:
            for offering in result.unavailable:
                unavailable.mark(aws.dynamodb(), self._settings.table_name, offering, reason="NoCapacity", now=now)
            if isinstance(result, Launched):
                self._record_launch(by_name[result.claim_name], result, now)
            else:
                self._record_failure(by_name[result.claim_name], result, now)
        return results

    def _record_launch(self, claim: NodeClaim, launched: Launched, now: datetime) -> None:
        """Labels first, Launched last: a run that dies in between is taken up again by its ClientToken."""
        self._client.patch(resources.NODE_CLAIMS.path(claim.name), {"metadata": {"labels": dict(launched.labels)}})
        conditions = with_condition(
            claim.status.conditions, nodeclaim.LAUNCHED, status=True, reason="Launched", now=now
        )
        status = {
            "providerID": launched.provider_id,
            "imageID": launched.image_id,
            "capacity": format_resources(launched.capacity),
            "allocatable": format_resources(launched.allocatable),
            "conditions": to_json(with_ready(conditions, now=now)),
        }
        writes.patch_status(self._client, resources.NODE_CLAIMS, claim.name, status)
        self._logger.info(
            "Launched an instance",
            extra={
                "nodeclaim": claim.name,
                "instance": launched.instance_id,
                "instance_type": launched.instance_type,
                "zone": launched.zone,
                "capacity_type": launched.capacity_type,
                "price": launched.price,
            },
        )

    def _record_failure(self, claim: NodeClaim, failed: Failed, now: datetime) -> None:
        """Without capacity the offerings are remembered and the claim goes; what a user must mend is told on it."""
        self._logger.warning(
            "An instance was not launched",
            extra={"nodeclaim": claim.name, "reason": failed.reason, "why": failed.message, "kind": failed.kind},
        )
        if failed.kind == "throttled":
            return
        self._recorder.record(claim.ref, "Warning", failed.reason, failed.message)
        if failed.kind == "configuration":
            conditions = with_condition(
                claim.status.conditions,
                nodeclaim.LAUNCHED,
                status=False,
                reason=failed.reason,
                message=failed.message,
                now=now,
            )
            writes.patch_status(self._client, resources.NODE_CLAIMS, claim.name, {"conditions": to_json(conditions)})
            return
        writes.delete(self._client, resources.NODE_CLAIMS, claim)

    def _tell(self, decision: Decision, snapshot: Snapshot) -> None:
        """Say on each pod why it has no place."""
        pods = {p.key: p for p in snapshot.pods}
        for key, refusal in sorted(decision.errors.items())[:_TOLD]:
            pod = pods.get(key)
            if pod is None:
                continue
            self._recorder.record(pod.ref, "Warning", "FailedScheduling", refusal.message)
            self._logger.warning("A pod can't be placed", extra={"pod": key, "why": refusal.message})


def _is_unlaunched(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is None and not is_true(claim.status.conditions, nodeclaim.LAUNCHED)


def _request(claim: NodeClaim, offers: Supply) -> LaunchRequest | None:
    """What to ask EC2 for, or None while the claim's pool or class can't launch."""
    pool = claim.metadata.labels.get(names.NODEPOOL, "")
    node_class = offers.node_classes.get(pool)
    allowed = claim_making.instance_types(claim)
    types = tuple(t for t in offers.instance_types.get(pool, ()) if t.name in allowed)
    if node_class is None or not types:
        return None
    return LaunchRequest(claim=claim, node_class=node_class, instance_types=types)


def _suffix(run: str, attempt: int, index: int) -> str:
    """Five lower-case letters and digits, as generateName makes them, but the same for the same run."""
    digest = hashlib.sha256(f"{run}/{attempt}/{index}".encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[b % 27] for b in digest[:5])
