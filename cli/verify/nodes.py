"""Brings up the node of a pod and sees it go: what several steps do before and after what they prove."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli.verify import objects, reasons
from cli.verify.result import StepFailedError
from cli.verify.verification import is_true
from shared.api import labels
from shared.base.struct import Struct
from shared.cluster import resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.verify.objects import Obj
    from cli.verify.verification import Verification

CLAIM_LIMIT = timedelta(minutes=3)
"""Two sweeps, and the time of a launch."""
TAGS_LIMIT = timedelta(minutes=1)
"""How long EC2 may hide a new instance's tags; usually it is a second or two."""
READY_LIMIT = timedelta(minutes=6)
GONE_LIMIT = timedelta(minutes=7)


class NodeOfPod(Struct, kw_only=True):
    """The node of a pod, its NodeClaim and instance; ``measured`` are the seconds from the pod's creation."""

    pod: str
    claim: str
    node: str
    instance: str
    measured: dict[str, float]


def bring_up(run: Verification, *pods: str, capacity_type: str = "") -> list[NodeOfPod]:
    """Create the pods, each on a node of its own, and wait until they run.

    Raises:
        StepFailedError: no NodeClaim or node came in time, or the pods don't run on it.
    """
    _wait_for_earlier_nodes(run)
    created = run.now()
    before = {claim["metadata"]["name"] for claim in run.claims()}
    for pod in pods:
        image = run.settings.pod_image
        run.create(resources.PODS, objects.pod(run.id, pod, image=image, capacity_type=capacity_type))
    measured: dict[str, float] = {}

    def new_claims() -> list[Obj]:
        claims = [c for c in run.claims() if c["metadata"]["name"] not in before]
        launched = [c for c in claims if c.get("status", {}).get("providerID")]
        return launched if len(launched) >= len(pods) else []

    claims = run.wait(new_claims, limit=CLAIM_LIMIT)
    measured["launched"] = run.seconds_since(created)
    if not claims:
        raise StepFailedError(
            f"No instance was launched for a pending pod within {_minutes(CLAIM_LIMIT)}{reasons.because(run, *pods)}."
        )
    instances = [_instance(c) for c in claims]
    measured["tags visible after the launch"] = _tags_visible(run, instances)
    names = [c["metadata"]["name"] for c in claims]
    if not run.wait(lambda: _nodes_are_ready(run, names), limit=READY_LIMIT):
        raise StepFailedError(
            f"An instance was launched, but its node wasn't Ready within {_minutes(READY_LIMIT)}"
            f"{reasons.because(run, *pods)}."
        )
    measured["node Ready"] = run.seconds_since(created)
    running = run.wait(lambda: _running(run, pods), limit=CLAIM_LIMIT)
    if not running:
        raise StepFailedError(f"The node is Ready, but its pod doesn't run{reasons.because(run, *pods)}.")
    measured["pod running"] = run.seconds_since(created)
    return [_node_of(run, pod, measured) for pod in running]


def _wait_for_earlier_nodes(run: Verification) -> None:
    """Wait until no node is there that a pod could use; draining ones take none.

    Raises:
        StepFailedError: one stays, although no pod needs it.
    """
    if not run.wait(lambda: all("deletionTimestamp" in c["metadata"] for c in run.claims()), limit=GONE_LIMIT):
        raise StepFailedError(f"The empty nodes of an earlier step weren't consolidated{reasons.because(run)}.")


def delete_pods(run: Verification, *pods: str) -> None:
    """Delete pods that exist."""
    for pod in pods:
        run.delete(resources.PODS, pod, namespace=run.name)


def wait_until_gone(run: Verification, claims: Sequence[str], *, failure: str) -> float:
    """Wait until the NodeClaims are gone, and no instance of theirs runs; the seconds that it took.

    Raises:
        StepFailedError: they stay; the sentence begins with ``failure``.
    """
    begun = run.now()

    def gone() -> bool:
        remaining = {c["metadata"]["name"] for c in run.claims()} & set(claims)
        running = {"pending", "running"}
        return not remaining and not any(
            i["State"]["Name"] in running
            for claim in claims
            for i in run.instances((f"tag:{labels.NODECLAIM_TAG}", claim))
        )

    if not run.wait(gone, limit=GONE_LIMIT):
        raise StepFailedError(f"{failure} within {_minutes(GONE_LIMIT)}{reasons.because(run)}.")
    return run.seconds_since(begun)


def _tags_visible(run: Verification, instances: Sequence[str]) -> float:
    """Wait until DescribeInstances finds the instances by their tags; the seconds.

    Raises:
        StepFailedError: it doesn't find them.
    """
    begun = run.now()
    by_tags = [(f"tag:{objects.TAG}", run.id), (f"tag:{labels.CLUSTER_TAG.format(cluster=run.cluster)}", "owned")]
    wanted = set(instances)
    if not run.wait(lambda: wanted <= {i["InstanceId"] for i in run.instances(*by_tags)}, limit=TAGS_LIMIT):
        raise StepFailedError(
            "An instance was launched, but a minute later DescribeInstances didn't find it by its tags, so Tenon can't "
            "find the cluster's instances either."
        )
    return run.seconds_since(begun)


def _instance(claim: Obj) -> str:
    provider_id: str = claim["status"]["providerID"]
    return provider_id.rpartition("/")[2]


def _nodes_are_ready(run: Verification, names: Sequence[str]) -> bool:
    claims = [c for c in run.claims() if c["metadata"]["name"] in names]
    ready = [c for c in claims if is_true(c, "Initialized") and (node := _node(run, c)) and is_true(node, "Ready")]
    return len(ready) == len(names)


def _node(run: Verification, claim: Obj) -> Obj | None:
    name = claim.get("status", {}).get("nodeName", "")
    return run.get(resources.NODES, name) if name else None


def _running(run: Verification, names: Sequence[str]) -> list[Obj]:
    pods = [run.get(resources.PODS, name, namespace=run.name) for name in names]
    running = [p for p in pods if p is not None and p.get("status", {}).get("phase") == "Running"]
    return running if len(running) == len(names) else []


def _node_of(run: Verification, pod: Obj, measured: dict[str, float]) -> NodeOfPod:
    node = pod["spec"]["nodeName"]
    claim = next(c for c in run.claims() if c.get("status", {}).get("nodeName") == node)
    return NodeOfPod(
        pod=pod["metadata"]["name"],
        claim=claim["metadata"]["name"],
        node=node,
        instance=_instance(claim),
        measured=dict(measured),
    )


def _minutes(limit: timedelta) -> str:
    return f"{int(limit.total_seconds() // 60)} minutes"
