"""The decision: one look at the cluster under its lease, and the claims that follow from it, written there.

Nothing is launched here. A run that dies after writing is finished by the next one, whoever that is, because claims
that stand there unlaunched are part of what every decision answers.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from shared import aws, host
from shared.api import nodeclaim
from shared.api.meta import is_true
from shared.cluster import resources, writes
from shared.cluster.lease import hold
from shared.cluster.reading import read
from shared.instances import unavailable
from shared.launch import supply
from shared.lifecycle import claims as claim_making
from shared.provisioning.grouping import grouped
from shared.scheduling.decision import Problem
from shared.scheduling.schedule import schedule

if TYPE_CHECKING:
    from datetime import datetime

    from aws_lambda_powertools import Logger

    from shared.api.nodeclaim import NodeClaim
    from shared.cluster.client import Client
    from shared.cluster.info import ClusterInfo
    from shared.instances.catalog import RawCatalog
    from shared.launch.supply import Supply
    from shared.provisioning.settings import ProvisioningSettings
    from shared.scheduling.decision import Decision
    from shared.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A decision that is written: ``created`` are its claims, ``waiting`` older ones that have no instance yet."""

    decision: Decision
    snapshot: Snapshot
    offers: Supply
    created: tuple[NodeClaim, ...]
    waiting: tuple[NodeClaim, ...]


@dataclass(frozen=True, kw_only=True)
class Deciding:
    """What decisions of one run are made with. ``holder`` says who holds the lease, ``run`` makes claims' names."""

    client: Client
    settings: ProvisioningSettings
    cluster: ClusterInfo
    raw: RawCatalog
    holder: str
    run: str
    logger: Logger

    def decide(self, attempt: int, leaving: frozenset[str]) -> Decided:
        """Place what is pending, and the pods of ``leaving`` nodes (by name), which get nothing new.

        Raises:
            LeaseHeldError: another function is deciding.
            LeaseLostError: this one took too long; nothing is written.
        """
        now = host.current().now()
        with hold(self.client, cluster=self.cluster.name, holder=self.holder, now=host.current().now) as lease:
            snapshot = read(self.client, now=now)
            offers = self._supply(snapshot, now)
            decision = schedule(
                Problem(
                    snapshot=snapshot,
                    instance_types=offers.instance_types,
                    not_ready=offers.not_ready,
                    leaving=leaving,
                )
            )
            lease.check()
            created = self._write(decision, snapshot, offers, attempt)
        waiting = tuple(c for c in snapshot.node_claims if _is_unlaunched(c))
        return Decided(decision=decision, snapshot=snapshot, offers=offers, created=created, waiting=waiting)

    def _supply(self, snapshot: Snapshot, now: datetime) -> Supply:
        return supply.gather(
            snapshot.node_pools,
            snapshot.node_classes,
            self.raw,
            self.cluster,
            unavailable=unavailable.current(aws.dynamodb(), self.settings.table_name, now=now),
            default_instance_profile=self.settings.node_instance_profile,
            now=now,
            nodes=snapshot.nodes,
            claims=snapshot.node_claims,
        )

    def _write(self, decision: Decision, snapshot: Snapshot, offers: Supply, attempt: int) -> tuple[NodeClaim, ...]:
        pools = {p.name: p for p in snapshot.node_pools}
        created = []
        for i, planned in enumerate(grouped(decision, snapshot, offers)):
            pool = pools[planned.node_pool]
            claim = claim_making.claim_for(
                planned,
                pool,
                offers.node_classes[pool.name],
                decision=f"{self.run}/{attempt}",
                name=f"{pool.name}-{_suffix(self.run, attempt, i)}",
            )
            stored = writes.create(self.client, resources.NODE_CLAIMS, claim)
            created.append(stored)
            self.logger.info(
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


def _is_unlaunched(claim: NodeClaim) -> bool:
    return claim.metadata.deletion_timestamp is None and not is_true(claim.status.conditions, nodeclaim.LAUNCHED)


def _suffix(run: str, attempt: int, index: int) -> str:
    """Five lower-case letters and digits, as generateName makes them, but the same for the same run."""
    digest = hashlib.sha256(f"{run}/{attempt}/{index}".encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[b % 27] for b in digest[:5])
