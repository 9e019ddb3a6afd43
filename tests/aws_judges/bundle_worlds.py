"""Local worlds whose functions have handled real events, which their bundles then get once more from outside."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import boto3

from functions.relay import relay_lease
from infra import function_sizes
from local.aws.iam_enforcement import access_key
from local.kubernetes.objects import timestamp
from local.world import Options, World, sample_objects
from shared.base.struct import Struct
from tests.aws_judges.runtime_emulator import Function
from tests.e2e.shadow.shadow_cluster import ShadowCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from local.aws.cloud import Cloud
    from local.aws.invocation import Invocation

_MINUTE = timedelta(minutes=1)
_BEFORE = timedelta(minutes=20)
"""How long before now a world starts, so that its clock is behind this machine's when it stands still."""
_CPU = {"karpenter.sh/capacity-type": ["spot"], "karpenter.k8s.aws/instance-cpu": ["4"]}
_RELAY_ELSEWHERE, _SECOND = timedelta(minutes=5), timedelta(seconds=1)


class JudgedFunction(Struct, kw_only=True):
    """A function in the sandbox, a real event for it, and whether the world shows that it has handled it."""

    function: Function
    event: Any
    has_effect: Callable[[], bool] = lambda: True


def functions(
    cloud: Cloud, bundles: Mapping[str, Path], endpoint: str, events: Mapping[str, Any]
) -> dict[str, JudgedFunction]:
    """The functions of the deployed stack for which there is an event."""
    return {
        name: JudgedFunction(
            function=Function(
                name=deployed.name,
                handler=deployed.handler,
                bundle=bundles[name],
                variables=deployed.environ,
                memory_mib=deployed.memory_mib,
                timeout=deployed.timeout,
                access_key=access_key(deployed.caller),
                endpoint=endpoint,
            ),
            event=event,
        )
        for name, event in events.items()
        for deployed in [cloud.deployed.function(name)]
    }


def _event_of(invocations: Sequence[Invocation], function: str, part: str = "") -> Any:
    """The last event that the function has handled, of those with this part of their text."""
    return next(
        i.event for i in reversed(invocations) if i.function == function and i.ok and part in json.dumps(i.event)
    )


@contextlib.contextmanager
def with_nodes(bundles: Mapping[str, Path]) -> Iterator[dict[str, JudgedFunction]]:
    """A world in which every function but the relay and shadow has handled an event, and pods wait for a node."""
    context = {"relay": "webhook", "bufferQueues": "orders", "nodeGroups": "on"}
    with World(options=Options(start=datetime.now(UTC) - _BEFORE, context=context)) as world:
        boto3.client("sqs").create_queue(QueueName="orders")
        world.apply([sample_objects.node_class(world), sample_objects.node_pool(_CPU)])
        world.apply(sample_objects.deployment("web", 4, {"cpu": "900m", "memory": "1Gi"}))
        world.run_until(lambda: len(world.pods(phase="Running")) == 4, limit=5 * _MINUTE)
        world.interrupt_spot([world.instances()[0].id])
        world.run_for(3 * _MINUTE)
        world.refresh_catalog()
        world.scale("default", "web", 20)
        world.settle()
        before = len(world.claims())
        invocations = world.aws.functions.invocations
        sweep = "Scheduled Event"
        events = {
            function_sizes.PROVISIONER: _event_of(invocations, function_sizes.PROVISIONER, sweep),
            function_sizes.LIFECYCLE: _event_of(invocations, function_sizes.LIFECYCLE, sweep),
            function_sizes.DISRUPTION: _event_of(invocations, function_sizes.DISRUPTION, sweep),
            function_sizes.TERMINATION: _event_of(invocations, function_sizes.TERMINATION),
            function_sizes.INTERRUPTION: _event_of(invocations, function_sizes.INTERRUPTION, "Interruption Warning"),
            function_sizes.CATALOG: _event_of(invocations, function_sizes.CATALOG, "prices"),
            function_sizes.BUFFERS: _event_of(invocations, function_sizes.BUFFERS, sweep),
            function_sizes.NODE_GROUPS: _event_of(invocations, function_sizes.NODE_GROUPS, sweep),
            function_sizes.WEBHOOK: _event_of(invocations, function_sizes.WEBHOOK),
        }
        with world.aws.endpoint() as endpoint:
            judged = functions(world.aws, bundles, endpoint.url, events)
            provisioner = judged[function_sizes.PROVISIONER]
            judged[function_sizes.PROVISIONER] = JudgedFunction(
                function=provisioner.function,
                event=provisioner.event,
                has_effect=lambda: len(world.claims()) > before,
            )
            yield judged


@contextlib.contextmanager
def with_relay_function(bundles: Mapping[str, Path]) -> Iterator[dict[str, JudgedFunction]]:
    """A world whose relay's Lease another invocation renews, so that the relay function answers at once."""
    with World(options=Options(start=datetime.now(UTC) - _BEFORE, context={"relay": "function"})) as world:
        world.run_for(2 * _MINUTE)
        leases = world.store.kind("coordination.k8s.io/v1", "Lease")
        now = datetime.now(UTC)
        lease = {
            "metadata": {"annotations": {"tenon.sh/relay-ends": timestamp(now + 2 * _RELAY_ELSEWHERE)}},
            # As far ahead as a clock may be, so that it counts until the function has started.
            "spec": {"holderIdentity": "another", "renewTime": timestamp(now + relay_lease.DURATION - _SECOND)},
        }
        world.store.patch(leases, "tenon-relay", lease, namespace="kube-system")
        event = _schedule(world.aws.deployed.function(function_sizes.RELAY).name)
        with world.aws.endpoint() as endpoint:
            yield functions(world.aws, bundles, endpoint.url, {function_sizes.RELAY: event})


@contextlib.contextmanager
def in_shadow_mode(bundles: Mapping[str, Path]) -> Iterator[dict[str, JudgedFunction]]:
    """The stack of shadow mode next to a cluster."""
    with ShadowCluster(datetime.now(UTC) - _BEFORE) as cluster, cluster.aws.endpoint() as endpoint:
        yield functions(cluster.aws, bundles, endpoint.url, {function_sizes.SHADOW: _schedule("shadow")})


def _schedule(rule: str) -> dict[str, Any]:
    return {
        "version": "0",
        "id": "12345678-1234-1234-1234-123456789012",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "123456789012",
        "time": timestamp(datetime.now(UTC)),
        "region": "us-east-1",
        "resources": [f"arn:aws:events:us-east-1:123456789012:rule/{rule}"],
        "detail": {},
    }


WORLDS = {"nodes": with_nodes, "relay": with_relay_function, "shadow mode": in_shadow_mode}
FUNCTIONS = {
    "nodes": tuple(
        name for name in function_sizes.OF_ANY_MODE if name not in (function_sizes.RELAY, function_sizes.SHADOW)
    ),
    "relay": (function_sizes.RELAY,),
    "shadow mode": (function_sizes.SHADOW,),
}
"""The functions of each world that are judged: together all of them."""
