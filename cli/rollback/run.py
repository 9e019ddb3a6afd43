"""Runs ``tenon rollback``: reads the nodes by the kubeconfig alone, as AWS isn't needed to tell who is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader
from cli.errors import UsageError
from cli.printable import echo
from cli.rollback.readiness import Observed, RollbackReadiness, minor, readiness
from shared.api.kubernetes import Node
from shared.api.nodeclass import EC2NodeClass
from shared.base.plurals import plural
from shared.cluster import resources
from shared.cluster.node_class_groups import list_node_claims
from shared.cluster.snapshot_reader import list_if_kind_exists
from shared.launch.node_class.kubernetes_version import MAX_OLDER

if TYPE_CHECKING:
    from cli.cluster.cluster_reference import ClusterReference


def check(reference: ClusterReference, target: str) -> RollbackReadiness:
    """Whether the cluster's control plane may go back to the version "1.36".

    Raises:
        UsageError: this is no version, or one that nodes can't have now.
    """
    reference = kubeconfig_context.resolve(reference)
    client = live_reader.connect(reference)
    current = live_reader.server_version(client)
    wanted, now = minor(target), minor(current)
    if target != f"{wanted[0]}.{wanted[1]}" or not now[1] - MAX_OLDER <= wanted[1] <= now[1]:
        raise UsageError(
            f'"{target}" must be a minor version from {now[0]}.{now[1] - MAX_OLDER} to {current}, which the control '
            "plane has: nodes may not be newer than it, nor more than three versions older"
        )
    observed = Observed(
        cluster=reference.cluster,
        control_plane=current,
        nodes=list_if_kind_exists(client, resources.NODES, Node).objects,
        claims=list_node_claims(client).own.objects,
        node_classes={c.name: c for c in list_if_kind_exists(client, resources.NODE_CLASSES, EC2NodeClass).objects},
    )
    return readiness(observed, target)


def show(outcome: RollbackReadiness, *, as_json: bool) -> None:
    """Print what is in the way, and what to do next."""
    if as_json:
        echo(json_output.text("rollback", outcome))
        return
    console = terminal.console()
    count = f"{len(outcome.newer)} of {plural(outcome.nodes, 'node')} still newer than {outcome.target}"
    console.print(f"control plane {outcome.control_plane}, back to {outcome.target}: {count}")
    if outcome.newer:
        table = terminal.table("node", "kubelet", "nodepool", "why", text=["why"], indent=0)
        for node in outcome.newer:
            table.add_row(node.name, node.version or "not joined", node.pool, node.why)
        console.print(table)
    console.print(f"next: {outcome.next}", soft_wrap=True)
