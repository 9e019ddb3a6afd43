"""The relays of a world: the pod, which runs in this process, or the invocations of the function."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3

from functions.relay import tenure
from infra import function_sizes
from infra.cluster.kubernetes import cluster_manifests
from local.aws.iam_enforcement import credentials
from local.kubernetes.errors import ApiError
from relay.relay import Relay

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from local.aws.lambda_functions import LambdaFunctions
    from local.kubernetes.registry.store import Store
    from local.world.control_plane import ControlPlane
    from shared.cluster.resources import Resource

_MAX_BACKOFF_SECONDS = 0.05


def have_observed(relays: Iterable[Relay], store: Store) -> bool:
    """Whether the relays have observed all changes of a cluster, which may lack some of the kinds that they watch."""

    def version_of(resource: Resource) -> int:
        try:
            return store.version_of(store.kind(resource.api_version, resource.kind))
        except ApiError:
            return 0

    return all(relay.has_observed(version_of) for relay in relays)


def pod(
    stack: contextlib.ExitStack,
    control_plane: ControlPlane,
    *,
    cluster: str,
    now: Callable[[], datetime],
    wake: Callable[[], None],
    caller: str = "relay",
) -> Relay:
    """The relay as a pod, not started; ``wake`` is called after each change, and ``stack`` closes its client.

    ``caller`` is as whom it calls AWS.
    """
    client = control_plane.relay_client()
    stack.callback(client.close)
    key = credentials(caller)
    return Relay(
        client,
        boto3.client("events", aws_access_key_id=key.access_key, aws_secret_access_key=key.secret_key),
        bus=cluster_manifests.bus_name(cluster),
        cluster=cluster,
        now=now,
        max_backoff=_MAX_BACKOFF_SECONDS,
        on_change=wake,
    )


def of_function(functions: LambdaFunctions) -> list[Relay]:
    """The relays of the function's invocations that hold or await the watch; none without the function."""
    if not _is_deployed(functions):
        return []
    caches = functions.waiting_caches(function_sizes.RELAY)
    return [cache[tenure.CACHE_KEY] for cache in caches if tenure.CACHE_KEY in cache]


def is_function_settled(functions: LambdaFunctions) -> bool:
    """Whether an invocation of the function watches everything, or there is no such function."""
    return not _is_deployed(functions) or any(relay.is_settled for relay in of_function(functions))


def _is_deployed(functions: LambdaFunctions) -> bool:
    try:
        functions.named(function_sizes.RELAY)
    except KeyError:
        return False
    return True
