"""What a migration from Cluster Autoscaler would do, by its Deployment, the groups on AWS and Tenon's deployment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3

from cli.cluster import live_reader
from cli.migrate import autoscaler_deployment, flags, replaced_groups, takeover
from shared.base.struct import Struct
from shared.node_groups import options, stored_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cli.migrate.autoscaler_deployment import AutoscalerDeployment
    from cli.migrate.flags import Translation
    from cli.migrate.replaced_groups import GroupChoice
    from shared.cluster.client import Client
    from shared.node_groups.stored_options import StoredConfigMap


class MigrationPlan(Struct, kw_only=True):
    """What would be written. ``data`` is the ConfigMap's; ``notes`` are what else to know."""

    deployment: AutoscalerDeployment
    config_map: StoredConfigMap
    translation: Translation
    choice: GroupChoice
    obstacles: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def data(self) -> dict[str, str]:
        """The options, with the choice of groups."""
        return {**self.translation.options, **self.choice.options}

    @property
    def is_complete(self) -> bool:
        """Whether everything is written already."""
        return takeover.is_complete(self.deployment, self.config_map)


def read(client: Client, cluster: str, namespace: str, name: str) -> MigrationPlan:
    """The plan. It reads AWS, so call it inside :func:`live_reader.read_only_aws`.

    Raises:
        CommandError: there is no Cluster Autoscaler, or several.
        ApiError, ClientError, BotoCoreError: the cluster or AWS can't be read.
    """
    deployment = autoscaler_deployment.find(client, namespace, name)
    config_map = stored_options.read_config_map(client, options.CONFIG_MAP)
    translation = flags.translate(flags.read(deployment.arguments, deployment.environment))
    create: Any = boto3.client
    choice = replaced_groups.choose(
        cluster, translation, autoscaling=create("autoscaling"), ec2=create("ec2"), eks=create("eks")
    )
    return MigrationPlan(
        deployment=deployment,
        config_map=config_map,
        translation=translation,
        choice=choice,
        obstacles=(*translation.obstacles, *choice.obstacles, *_obstacles(cluster, deployment, config_map)),
        notes=tuple(_notes(translation, config_map, {**translation.options, **choice.options})),
    )


def _obstacles(cluster: str, deployment: AutoscalerDeployment, config_map: StoredConfigMap) -> Iterator[str]:
    deployed = live_reader.find_deployment(cluster)
    if deployed is None:
        yield f"Tenon isn't deployed for cluster {cluster}: deploy it with -c nodeGroups=on first"
    elif not deployed.node_groups:
        yield "Tenon is deployed without node groups: deploy with -c nodeGroups=on first"
    record = takeover.read_record(config_map)
    if record is not None and record.reference != deployment.reference:
        yield f"ConfigMap {takeover.CONFIG_MAP} replaced Deployment {record.reference}: --undo that first"
    elif record is None and config_map.metadata.uid:
        yield f"ConfigMap {takeover.CONFIG_MAP} exists, and its options would be replaced: save what you need of it"


def _notes(translation: Translation, config_map: StoredConfigMap, data: Mapping[str, str]) -> Iterator[str]:
    if "expander" not in {result.flag.name for result in translation.results}:
        yield "without --expander, Cluster Autoscaler takes any group at random, and Tenon the cheapest"
    if translation.invisible:
        yield (
            f"with {translation.invisible}, Tenon can't see by Lease {stored_options.NAMESPACE}/"
            f"{stored_options.CLUSTER_AUTOSCALER} that Cluster Autoscaler runs: never run both"
        )
    if takeover.read_record(config_map) is not None and config_map.data != data:
        yield f"ConfigMap {takeover.CONFIG_MAP} is of an earlier run and stays as it is: --undo first to write it again"
