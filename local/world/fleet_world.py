"""Several clusters of one fleet in one account: their control planes, nodes and relays next to one local AWS.

It joins the parts that a :class:`~local.world.world.World` has for its one cluster.
"""

from __future__ import annotations

import base64
import contextlib
from typing import TYPE_CHECKING, Any, Self

from infra import assembly, installation
from infra.cluster import resource_names
from infra.cluster.kubernetes import cluster_manifests
from infra.options import stack_options
from local.aws.account import ROLE, SERVICE_CIDR
from local.aws.cloud import Cloud
from local.clock import Clock
from local.faults import Faults
from local.kubelets.kubelets import Kubelets
from local.kubernetes import kinds
from local.world import catalog_cache, relays
from local.world.apply import apply_object, read_objects
from local.world.control_plane import EmbeddedControlPlane
from local.world.ec2_machines import MachinesOfCluster
from local.world.event_loop import DEFAULT_LIMIT, EventLoop
from shared.base.struct import MutableStruct
from shared.cluster.connect import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

    from local.aws.invocation import Invocation
    from local.aws.stack import DeployedStack
    from local.kubernetes.objects import Obj
    from relay.relay import Relay

_REGION = "us-east-1"
_VERSION = "1.34"


class MemberCluster(MutableStruct, kw_only=True):
    """A cluster of the fleet, with its stack."""

    name: str
    control_plane: EmbeddedControlPlane
    stack: DeployedStack | None = None
    relay: Relay | None = None
    applied: list[Obj] = []

    def apply(self, source: str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> None:
        """``kubectl apply``, as :meth:`local.world.world.World.apply`."""
        store = self.control_plane.store
        self.applied += [apply_object(store, obj) for obj in read_objects(source, cluster=self.name)]

    def nodes(self) -> list[Obj]:
        """The cluster's nodes."""
        return self.control_plane.store.list(kinds.NODES)

    def pods(self, *, phase: str = "") -> list[Obj]:
        """The cluster's pods, or those in a phase."""
        pods = self.control_plane.store.list(kinds.PODS)
        return [pod for pod in pods if not phase or pod.get("status", {}).get("phase") == phase]

    @property
    def info(self) -> ClusterInfo:
        """What nodes and functions know of the cluster."""
        return ClusterInfo(
            name=self.name,
            endpoint=self.control_plane.url,
            certificate_authority=base64.b64encode(self.control_plane.certificate_authority.encode()).decode(),
            version=_VERSION,
            service_cidr=SERVICE_CIDR,
            region=_REGION,
        )

    def has_observed(self) -> bool:
        """Whether its relay has observed all changes."""
        return self.relay is None or relays.have_observed([self.relay], self.control_plane.store)


class FleetWorld:
    """A context manager. Time moves only in the methods that say so."""

    def __init__(
        self, *, fleet: str, clusters: Sequence[str], context: Mapping[str, str] | None = None, catalog: bool = True
    ) -> None:
        """``catalog`` tells whether the instance type catalog is filled at the start, ``context`` is the CDK's."""
        self._catalog = catalog
        self.fleet = fleet
        self.clock = Clock(None)
        self.faults = Faults(seed=0)
        self.clusters = {
            name: MemberCluster(name=name, control_plane=EmbeddedControlPlane(self.clock, self.faults))
            for name in clusters
        }
        self._context = {
            "bundle": "source",
            "clusterSide": "printed",
            "nodeRoles": ",".join(ROLE.format(cluster=name) for name in clusters),
            "relay": "pod",
            "fleet": fleet,
            "clusters": ",".join(clusters),
            **(context or {}),
        }
        self._stack = contextlib.ExitStack()
        self._loop: EventLoop
        self.aws: Cloud

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            for member in self.clusters.values():
                stack.enter_context(member.control_plane)
            self.aws = stack.enter_context(Cloud(now=self.clock.now, sleep=self.clock.sleep, faults=self.faults))
            self._deploy()
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _deploy(self) -> None:
        for member in self.clusters.values():
            info = member.info
            self.aws.prepare(
                cluster=member.name,
                version=_VERSION,
                endpoint=info.endpoint,
                certificate_authority=info.certificate_authority,
            )
        self.aws.deploy(assembly.cached(cluster="", root=installation.ROOT, context=self._context))
        for member in self.clusters.values():
            name = resource_names.stack(member.name)
            member.stack = next(stack for stack in self.aws.stacks if stack.stack == name)
            member.control_plane.authenticate_functions(member.stack)
            member.apply(cluster_manifests.access_of(stack_options.parse(self._context, cluster=member.name)))
            member.apply([*cluster_manifests.kinds(), *cluster_manifests.relay_access()])
        bucket = self.aws.functions.named("catalog").environ["TENON_CATALOG_BUCKET"]
        if self._catalog:
            # Without a cached one the first hint of a cluster without a catalog has it fetched.
            catalog_cache.restore(bucket, region=_REGION, seed=0, now=self.clock.now())

    def _start(self, stack: contextlib.ExitStack) -> None:
        for member in self.clusters.values():
            assert member.stack is not None
            member.relay = relays.pod(
                stack,
                member.control_plane,
                cluster=member.name,
                now=self.clock.now,
                wake=lambda: self._loop.wake(),  # noqa: PLW0108 (the loop exists later)
                caller=member.stack.relay_caller,
            )
        members = self.clusters.values()
        nodes = [
            Kubelets(m.control_plane.store, MachinesOfCluster(self.aws.instances, m.name), m.info) for m in members
        ]
        running = [member.relay for member in members if member.relay is not None]
        controllers = [actor for member in members for actor in member.control_plane.controllers()]
        self._loop = EventLoop(
            self.clock,
            [*controllers, *nodes, *running, *self.aws.actors()],
            is_busy=lambda: bool(self.aws.functions.running) or not all(m.has_observed() for m in members),
            after_step=lambda: None,
            unfinished=lambda: [self.failures(), self.denied_requests()],
        )
        for relay in running:
            relay.start()
            stack.callback(relay.stop)

    def run_until(self, condition: Callable[[], bool], *, limit: timedelta = DEFAULT_LIMIT) -> None:
        """Run until the condition holds.

        Raises:
            StuckError: it doesn't hold within that much cluster time.
        """
        self._loop.run_until(condition, limit=limit)

    def run_for(self, duration: timedelta) -> None:
        """Run for that much cluster time."""
        self._loop.run_for(duration)

    def invocations(self, cluster: str, function: str) -> list[Invocation]:
        """The finished invocations of a cluster's function, "" for the fleet's."""
        name = resource_names.function(cluster or resource_names.of_fleet(self.fleet), function)
        return [invocation for invocation in self.aws.functions.invocations if invocation.function_name == name]

    def failures(self) -> list[str]:
        """The failed invocations, one text each."""
        return [
            f"{i.function_name} ({i.trigger}) at {i.at:%H:%M:%S}: {i.error}\n{i.traceback}"
            for i in self.aws.functions.invocations
            if not i.ok
        ]

    def denied_requests(self) -> list[str]:
        """The requests to AWS and Kubernetes that IAM or RBAC denied, one text each."""
        in_clusters = [text for m in self.clusters.values() for text in m.control_plane.denied_requests()]
        return [*map(str, self.aws.enforcement.denied), *in_clusters]
