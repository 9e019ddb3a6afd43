"""The step of a drain past a PodDisruptionBudget: the budget holds the pod, and then allows its eviction."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli.verify import nodes, objects, reasons
from cli.verify.result import Proof, StepFailedError
from shared.api import labels
from shared.cluster import resources

if TYPE_CHECKING:
    from cli.verify.nodes import NodeOfPod
    from cli.verify.verification import Verification

_POD = "guarded"
_BEGIN_LIMIT = timedelta(minutes=2)
_HELD_SECONDS = 30
_EVICTION_LIMIT = timedelta(minutes=3)


def verify(run: Verification) -> Proof:
    """A deleted NodeClaim's node is drained; its pod stays while the budget forbids the eviction, and goes after."""
    run.create(resources.POD_DISRUPTION_BUDGETS, objects.budget(run.id, _POD, min_available=1))
    try:
        (node,) = nodes.bring_up(run, _POD)
        run.delete(resources.NODE_CLAIMS, node.claim)
        _expect_hold(run, node)
        run.client.patch(resources.POD_DISRUPTION_BUDGETS.path(_POD, namespace=run.name), {"spec": {"minAvailable": 0}})
        allowed = run.now()
        if not run.wait(lambda: not _stays(run), limit=_EVICTION_LIMIT):
            raise StepFailedError(
                "The pod wasn't evicted within 3 minutes after its PodDisruptionBudget allowed it"
                f"{reasons.because(run, node.node)}."
            )
        evicted = run.seconds_since(allowed)
        gone = nodes.wait_until_gone(run, [node.claim], failure="The drained node's instance didn't end")
    finally:
        nodes.delete_pods(run, _POD)
        run.delete(resources.POD_DISRUPTION_BUDGETS, _POD, namespace=run.name)
    return Proof(
        sentence=f"The PodDisruptionBudget held the pod for {_HELD_SECONDS} s; {evicted:.0f} s after it allowed the "
        "eviction the pod was gone.",
        measured={**node.measured, "evicted after the budget allowed it": evicted, "gone after the eviction": gone},
    )


def _expect_hold(run: Verification, node: NodeOfPod) -> None:
    """The drain begins, and the pod stays.

    Raises:
        StepFailedError: it doesn't, or the pod is evicted.
    """
    if not run.wait(lambda: _is_draining(run, node.node), limit=_BEGIN_LIMIT):
        raise StepFailedError(
            f"The drain didn't begin within 2 minutes after its NodeClaim was deleted{reasons.because(run, node.node)}."
        )
    end = run.now() + timedelta(seconds=_HELD_SECONDS)
    if run.wait(lambda: not _stays(run) or run.now() >= end, limit=_BEGIN_LIMIT) and not _stays(run):
        raise StepFailedError("The pod was evicted although its PodDisruptionBudget forbade it.")


def _is_draining(run: Verification, name: str) -> bool:
    node = run.get(resources.NODES, name)
    taints = node.get("spec", {}).get("taints") or () if node is not None else ()
    return any(taint["key"] == labels.DISRUPTED_TAINT for taint in taints)


def _stays(run: Verification) -> bool:
    pod = run.get(resources.PODS, _POD, namespace=run.name)
    return pod is not None and "deletionTimestamp" not in pod["metadata"]
