"""Runs ``tenon upgrade-check``: reads the functions' descriptions and the cluster's objects, and compares them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader
from cli.errors import UsageError
from cli.printable import echo
from cli.upgrade import comparison
from infra import function_sizes, installation
from infra.cluster import resource_names
from infra.cluster.kubernetes import cluster_manifests
from shared.api import labels
from shared.api.hash import node_pool_hash_version
from shared.api.nodepool import NodePool
from shared.base import aws
from shared.base.plurals import plural
from shared.cluster import resources
from shared.cluster.errors import ForbiddenError, NotFoundError
from shared.cluster.snapshot_reader import list_if_kind_exists

if TYPE_CHECKING:
    from cli.cluster.cluster_reference import ClusterReference
    from cli.upgrade.comparison import ObjectChange, UpgradeCheck
    from shared.cluster.client import Client

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_PATHS = {
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "Role": f"{_RBAC}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{_RBAC}/namespaces/{{namespace}}/rolebindings",
}


def check(reference: ClusterReference) -> UpgradeCheck:
    """What deploying this version would change in the cluster.

    Raises:
        UsageError: Tenon isn't deployed there.
    """
    reference = kubeconfig_context.resolve_named(reference)
    with live_reader.read_only_aws(reference):
        versions = _deployed(reference.cluster)
    if not versions:
        raise UsageError(f'Tenon is not deployed for cluster "{reference.cluster}" in this account and Region')
    client = live_reader.connect(reference)
    functions = [name for name in function_sizes.OF_ANY_MODE if name in versions]
    expected = cluster_manifests.access(functions, node_groups=function_sizes.NODE_GROUPS in functions)
    if function_sizes.SHADOW not in functions:
        expected = [*cluster_manifests.kinds(), *expected]
    pools = list_if_kind_exists(client, resources.NODE_POOLS, NodePool).objects
    return comparison.check(
        cluster=reference.cluster,
        installed=installation.version(),
        deployed=sorted(set(versions.values())),
        objects=[_change(client, obj) for obj in expected],
        rehashed_pools=sum(
            pool.metadata.annotations.get(labels.NODEPOOL_HASH_VERSION, "") not in {"", node_pool_hash_version(pool)}
            for pool in pools
        ),
    )


def show(outcome: UpgradeCheck, *, as_json: bool) -> None:
    """Print what the upgrade changes, and what to do."""
    if as_json:
        echo(json_output.text("upgrade-check", outcome))
        return
    console = terminal.console()
    console.print(f"{outcome.cluster}: version {', '.join(outcome.deployed)} is deployed, this is {outcome.installed}")
    count = plural(outcome.compared, "object")
    console.print(f"{len(outcome.objects)} of {count} in the cluster change")
    if outcome.objects:
        table = terminal.table("kind", "name", "change", "what", text=["what"], indent=0)
        for change in outcome.objects:
            table.add_row(change.kind, change.name, change.state, change.detail)
        console.print(table)
    if outcome.rehashed_pools:
        console.print(f"{plural(outcome.rehashed_pools, 'NodePool')} hashed by another rule; no node drifts by that")
    for obstacle in outcome.obstacles:
        console.print(obstacle, style=terminal.BAD, soft_wrap=True)
    console.print(f"next: {outcome.next}", soft_wrap=True)


def _deployed(cluster: str) -> dict[str, str]:
    """The version of each function that is deployed."""
    versions = {}
    for name in function_sizes.OF_ANY_MODE:
        try:
            function = resource_names.function(cluster, name)
            configuration = aws.lambda_functions().get_function_configuration(FunctionName=function)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceNotFoundException":
                raise
        else:
            versions[name] = comparison.version_of(configuration.get("Description", ""))
    return versions


def _change(client: Client, obj: dict[str, Any]) -> ObjectChange:
    metadata = obj["metadata"]
    folder = _PATHS[obj["kind"]].format(namespace=metadata.get("namespace", ""))
    try:
        stored = json.loads(client.get(f"{folder}/{metadata['name']}"))
    except NotFoundError:
        stored = None
    except ForbiddenError as error:
        return comparison.ObjectChange(
            kind=obj["kind"], name=metadata["name"], state="unreadable", detail=error.message or error.reason
        )
    return comparison.change(obj, stored)
