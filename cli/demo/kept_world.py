"""The cluster that `tenon demo --keep` leaves running: its kubeconfig, its AWS for other processes, and its clock."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cli.cluster import local_world
from infra import installation
from local.aws.backends import ACCOUNT
from shared.api.yaml_documents import reader, writer
from shared.cluster.node_class_groups import own_node_pools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from local.world import World

KUBECONFIG = installation.build_folder(installation.ROOT) / "demo" / "kubeconfig"
LEAD = timedelta(minutes=30)
"""How far before the present the cluster's clock begins, so that the skipped time of the steps ends before now."""
_LISTED = "pods,nodes,nodeclaims,nodepools,ec2nodeclasses"
_LEGACY = "provisioners,awsnodetemplates"


def start() -> datetime:
    """The first time of a cluster that is kept."""
    return datetime.now(UTC) - LEAD


def catch_up(world: World) -> timedelta:
    """Let the cluster's time go by until it is now; how far it is ahead instead, if the steps took longer."""
    ahead = world.clock.now() - datetime.now(UTC)
    if ahead < timedelta():
        world.run_for(-ahead)
    return max(ahead, timedelta())


@contextlib.contextmanager
def kubeconfig(world: World) -> Iterator[Path]:
    """The file of a kubeconfig while it is entered: kubectl and tenon use this cluster and its AWS with it."""
    config = reader.document(world.kubectl_config())
    name = f"arn:aws:eks:{world.region}:{ACCOUNT}:cluster/{world.cluster}"
    with world.aws.endpoint() as endpoint:
        config["clusters"][0]["name"] = config["current-context"] = name
        context = {**config["contexts"][0]["context"], "cluster": name}
        context["extensions"] = [local_world.extension(endpoint.url)]
        config["contexts"] = [{"name": name, "context": context}]
        KUBECONFIG.parent.mkdir(parents=True, exist_ok=True)
        KUBECONFIG.touch(mode=0o600)
        KUBECONFIG.write_text(writer.text(config, sort_keys=True))
        try:
            yield KUBECONFIG
        finally:
            KUBECONFIG.unlink(missing_ok=True)


def commands(world: World, kubeconfig: Path) -> Iterator[str]:
    """What to type in another terminal, with objects of this cluster."""
    yield f"export KUBECONFIG={kubeconfig}"
    yield f"kubectl get {_LISTED},{_LEGACY}"
    yield "tenon nodes"
    yield "tenon status"
    yield "tenon plan"
    kinds = (("karpenter.sh/v1", "NodePool"), ("karpenter.sh/v1alpha5", "Provisioner"))
    raw_pools = [p for kind in kinds for p in world.store.list(world.store.kind(*kind))]
    pools = [p["metadata"]["name"] for p in own_node_pools(raw_pools)]
    yield from (f"tenon explain nodepool {name}" for name in pools[:1])
    yield from (f"tenon explain node {node['metadata']['name']}" for node in world.nodes()[:1])
    yield "tenon report"
