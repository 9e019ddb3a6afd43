"""Takes node groups over from Cluster Autoscaler and gives them back, by writes that can be repeated.

The ConfigMap comes first, with a record of the Deployment and its replicas, and then the Deployment is scaled: whoever
dies between the two is continued by the next run, which finds the record. Tenon scales no group while Cluster
Autoscaler's Lease is fresh, so there are never two that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.errors import CommandError
from cli.migrate import autoscaler_deployment
from shared.base import runtime
from shared.base.struct import Struct
from shared.cluster.errors import AlreadyExistsError
from shared.cluster.resources import CONFIG_MAPS
from shared.node_groups import options, stored_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from cli.migrate.autoscaler_deployment import AutoscalerDeployment
    from shared.cluster.client import Client
    from shared.node_groups.stored_options import StoredConfigMap

    Progress = Callable[[str], None]

CONFIG_MAP = f"{stored_options.NAMESPACE}/{options.CONFIG_MAP}"
DEPLOYMENT_ANNOTATION = "tenon.sh/replaced-deployment"
"""The ConfigMap's annotation for the Deployment that was scaled to 0, as ``namespace/name``."""
REPLICAS_ANNOTATION = "tenon.sh/replaced-replicas"
"""The ConfigMap's annotation for the replicas that the Deployment had."""
_POLL_SECONDS = 2.0


class Record(Struct):
    """What a ConfigMap replaced."""

    namespace: str
    name: str
    replicas: int

    @property
    def reference(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


def read_record(config_map: StoredConfigMap) -> Record | None:
    """The record of a migration; None if the ConfigMap doesn't exist or wasn't written by one.

    Raises:
        CommandError: it can't be read.
    """
    annotations = config_map.metadata.annotations
    reference = annotations.get(DEPLOYMENT_ANNOTATION)
    if reference is None:
        return None
    namespace, _, name = reference.partition("/")
    replicas = annotations.get(REPLICAS_ANNOTATION, "")
    if not (namespace and name and replicas.isdecimal()):
        raise CommandError(
            f"ConfigMap {CONFIG_MAP}: annotations {DEPLOYMENT_ANNOTATION}={reference} and "
            f"{REPLICAS_ANNOTATION}={replicas} can't be read; write namespace/name and a number"
        )
    return Record(namespace, name, int(replicas))


def is_complete(deployment: AutoscalerDeployment, config_map: StoredConfigMap) -> bool:
    """Whether a migration wrote everything that it writes."""
    return read_record(config_map) is not None and deployment.spec.replicas == 0


def apply(
    client: Client,
    deployment: AutoscalerDeployment,
    config_map: StoredConfigMap,
    data: Mapping[str, str],
    *,
    limit: timedelta,
    progress: Progress,
) -> list[str]:
    """Write the ConfigMap, scale the Deployment to 0 and wait for its pods to go; what was changed, as sentences.

    A ConfigMap with a record stays as it is: it may have been edited since.

    Raises:
        CommandError: pods are still there after ``limit``, or somebody else wrote the ConfigMap meanwhile.
        ApiError: the API server refuses a call.
    """
    changed: list[str] = []
    if read_record(config_map) is None:
        _write(client, deployment, config_map, data)
        changed.append(f"wrote ConfigMap {CONFIG_MAP}")
        progress(changed[-1])
    before = deployment.spec.replicas
    if autoscaler_deployment.scale(client, deployment, 0):
        changed.append(f"scaled Deployment {deployment.reference} from {before} to 0")
        progress(changed[-1])
    _wait(
        lambda: autoscaler_deployment.pods(client, deployment) == 0,
        waiting=f"waiting for the pods of {deployment.reference} to end",
        late=f"pods of Deployment {deployment.reference} are still there; see what keeps them, and run this again",
        limit=limit,
        progress=progress,
    )
    return changed


def undo(
    client: Client,
    deployment: AutoscalerDeployment,
    config_map: StoredConfigMap,
    record: Record,
    *,
    limit: timedelta | None,
    progress: Progress,
) -> list[str]:
    """Scale the Deployment back, wait until it renews its Lease, and remove the ConfigMap; what was changed.

    Without the ConfigMap Tenon has its defaults, so it stays until Cluster Autoscaler works. ``limit`` None doesn't
    wait.

    Raises:
        CommandError: Cluster Autoscaler doesn't renew its Lease after ``limit``.
        ApiError: the API server refuses a call.
    """
    changed: list[str] = []
    before = deployment.spec.replicas
    last = stored_options.lease_renewal(client)
    if autoscaler_deployment.scale(client, deployment, record.replicas):
        changed.append(f"scaled Deployment {deployment.reference} from {before} to {record.replicas}")
        progress(changed[-1])
    if record.replicas and limit is not None:
        _wait(
            # A renewal after this run began: pods that ended a moment ago leave a fresh Lease.
            lambda: stored_options.lease_renewal(client) not in {None, last},
            waiting=f"waiting for {deployment.reference} to renew its Lease",
            late=f"Deployment {deployment.reference} doesn't renew Lease {stored_options.NAMESPACE}/"
            f"{stored_options.CLUSTER_AUTOSCALER}; see why its pods don't work, and run this again",
            limit=limit,
            progress=progress,
        )
    path = CONFIG_MAPS.path(options.CONFIG_MAP, namespace=stored_options.NAMESPACE)
    client.delete(path, resource_version=config_map.metadata.resource_version)
    changed.append(f"removed ConfigMap {CONFIG_MAP}")
    progress(changed[-1])
    return changed


def _write(
    client: Client, deployment: AutoscalerDeployment, config_map: StoredConfigMap, data: Mapping[str, str]
) -> None:
    annotations = {
        DEPLOYMENT_ANNOTATION: deployment.reference,
        REPLICAS_ANNOTATION: str(deployment.spec.replicas),
    }
    if config_map.metadata.uid:
        metadata: dict[str, Any] = {"resourceVersion": config_map.metadata.resource_version, "annotations": annotations}
        path = CONFIG_MAPS.path(options.CONFIG_MAP, namespace=stored_options.NAMESPACE)
        client.patch(path, {"metadata": metadata, "data": {**dict.fromkeys(config_map.data), **data}})
        return
    metadata = {"name": options.CONFIG_MAP, "namespace": stored_options.NAMESPACE, "annotations": annotations}
    created = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
    try:
        client.create(CONFIG_MAPS.path(namespace=stored_options.NAMESPACE), created)
    except AlreadyExistsError:
        raise CommandError(f"somebody else created ConfigMap {CONFIG_MAP} meanwhile; run this again") from None


def _wait(is_done: Callable[[], bool], *, waiting: str, late: str, limit: timedelta, progress: Progress) -> None:
    host = runtime.current()
    end = host.now() + limit
    announced = False
    while not is_done():
        if host.now() >= end:
            raise CommandError(late)
        if not announced:
            progress(waiting)
            announced = True
        host.sleep(_POLL_SECONDS)
