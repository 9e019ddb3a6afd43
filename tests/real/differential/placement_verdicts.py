"""Who may run where, by three judges: the real scheduler, the embedded one, and Tenon's solver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.problem_files import Document, simulation_input
from local.kubernetes import kinds
from shared.scheduling.scheduler import schedule
from tests.real import scheduling

if TYPE_CHECKING:
    from local.kubernetes.kinds import Kind
    from tests.real.differential.random_placements import Json, PlacementProblem
    from tests.real.scheduling import Cluster

PLACED = "placed"
_KINDS = (
    kinds.NODES, kinds.NAMESPACES, kinds.PERSISTENT_VOLUMES, kinds.PERSISTENT_VOLUME_CLAIMS, kinds.STORAGE_CLASSES,
    kinds.CSI_NODES,
)  # fmt: skip
"""What the solver is given in addition to pods."""


def create(cluster: Cluster, problem: PlacementProblem) -> None:
    """Create the problem's nodes and what is on them."""
    for namespace in problem.namespaces:
        if cluster.store.find(kinds.NAMESPACES, namespace["metadata"]["name"]) is None:
            cluster.store.create(kinds.NAMESPACES, namespace)
    for node in problem.nodes:
        scheduling.create_node(cluster, node["name"], node["allocatable"], labels=node["labels"], taints=node["taints"])
    for node in problem.nodes:
        scheduling.settle_node(cluster, node["name"], len(node["taints"]))
    scheduling.release(cluster, *(node["name"] for node in problem.nodes))
    for kind, objects in (
        (kinds.PERSISTENT_VOLUMES, problem.volumes),
        (kinds.PERSISTENT_VOLUME_CLAIMS, problem.claims),
    ):
        for obj in objects:
            cluster.store.create(kind, obj, namespace=obj["metadata"].get("namespace", ""))
    scheduling.wait_until(cluster, lambda: _all_bound(cluster))
    for pod in problem.bound:
        scheduling.create_pod(cluster, pod)


def _all_bound(cluster: Cluster) -> bool:
    claims = cluster.store.list(kinds.PERSISTENT_VOLUME_CLAIMS)
    return all((claim.get("status") or {}).get("phase") == "Bound" for claim in claims)


def solver_verdicts(cluster: Cluster, problem: PlacementProblem) -> dict[str, str]:
    """For each waiting pod of the problem, whether the solver places it on existing capacity, else its reason."""
    cluster_objects = [_typed(kind, obj) for kind in _KINDS for obj in cluster.store.list(kind)]
    pods = [_typed(kinds.PODS, pod) for pod in cluster.store.list(kinds.PODS)]
    bound = [pod for pod in pods if "waits" not in (pod["metadata"].get("labels") or {})]
    return {
        pod["metadata"]["name"]: _solver_verdict([*cluster_objects, *bound], _typed(kinds.PODS, pod))
        for pod in problem.waiting()
    }


def _typed(kind: Kind, obj: Json) -> Json:
    return {**obj, "apiVersion": kind.api_version, "kind": kind.kind}


def _solver_verdict(cluster_objects: list[Json], pod: Json) -> str:
    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    simulated = simulation_input(Document(objects=[*cluster_objects, pod]), now=scheduling.START)
    if simulated.refused or simulated.invalid:
        return f"refused: {[*simulated.refused.values(), *simulated.invalid]}"
    decision = schedule(simulated.problem)
    if any(key in pods for pods in decision.existing_nodes.values()):
        return PLACED
    return str(decision.pod_errors[key].message) if key in decision.pod_errors else "neither placed nor refused"


def scheduler_verdicts(cluster: Cluster, problem: PlacementProblem) -> dict[str, str]:
    """For each waiting pod of the problem, whether the cluster's scheduler places it, else its message."""
    for pod in problem.waiting():
        scheduling.create_pod(cluster, pod)
    cluster.settle()
    waiting = [pod for pod in cluster.store.list(kinds.PODS) if (pod["metadata"].get("labels") or {}).get("waits")]
    return {pod["metadata"]["name"]: _verdict(pod) for pod in waiting}


def _verdict(pod: Json) -> str:
    if pod["spec"].get("nodeName"):
        return PLACED
    conditions = pod["status"].get("conditions") or []
    message = next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")
    # Behind the filters' sentence, the real scheduler says why preemption and claims of devices don't help.
    return str(message).partition(". ")[0].removesuffix(".")
