"""The step of a protected instance: it keeps its own NodeClaim only, which says why, and goes once it may."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli.verify import nodes, reasons
from cli.verify.result import Proof, StepFailedError
from cli.verify.verification import condition
from shared.api import labels, nodeclaim
from shared.cluster import resources

if TYPE_CHECKING:
    from cli.verify.nodes import NodeOfPod
    from cli.verify.verification import Verification

_PODS = ("protected", "other")
_REFUSED = "TerminationRefused"
_REASON_LIMIT = timedelta(minutes=5)


def verify(run: Verification) -> Proof:
    """Of two deleted NodeClaims one is of a protected instance: the other goes, and this one says why it stays.

    On demand: EC2 doesn't protect spot instances against termination (EC2 user guide, "Change instance termination
    protection").
    """
    try:
        protected, unprotected = nodes.bring_up(run, *_PODS, capacity_type=labels.ON_DEMAND)
        protect(run, protected.instance)
        nodes.delete_pods(run, *_PODS)
        for node in (protected, unprotected):
            run.delete(resources.NODE_CLAIMS, node.claim)
        deleted = run.now()
        _expect_reason(run, protected)
        named = run.seconds_since(deleted)
        other_gone = nodes.wait_until_gone(
            run, [unprotected.claim], failure="A protected instance also kept another's NodeClaim, which didn't go"
        )
        unprotect(run, protected.instance)
        gone = nodes.wait_until_gone(
            run, [protected.claim], failure="The instance didn't go after its protection was removed"
        )
    finally:
        nodes.delete_pods(run, *_PODS)
    return Proof(
        sentence=f"The NodeClaim of a protected instance said why it stays after {named:.0f} s, the other one went, "
        f"and it went {gone:.0f} s after its protection was removed.",
        measured={
            **protected.measured,
            "reason on the NodeClaim": named,
            "other instance gone after the reason": other_gone,
            "gone after protection was removed": gone,
        },
    )


def protect(run: Verification, instance: str) -> None:
    """Protect the instance against termination by the API; it still ends if it shuts itself down."""
    ec2 = run.aws("ec2")
    ec2.modify_instance_attribute(InstanceId=instance, InstanceInitiatedShutdownBehavior={"Value": "terminate"})
    ec2.modify_instance_attribute(InstanceId=instance, DisableApiTermination={"Value": True})


def unprotect(run: Verification, instance: str) -> None:
    """Remove the protection."""
    run.aws("ec2").modify_instance_attribute(InstanceId=instance, DisableApiTermination={"Value": False})


def _expect_reason(run: Verification, node: NodeOfPod) -> None:
    """The NodeClaim says that EC2 refuses to terminate its instance.

    Raises:
        StepFailedError: it doesn't, or it is gone.
    """

    def is_named() -> bool:
        claim = run.get(resources.NODE_CLAIMS, node.claim)
        if claim is None:
            raise StepFailedError("The NodeClaim of a protected instance is gone, although its instance still runs.")
        stated = condition(claim, nodeclaim.INSTANCE_TERMINATING) or {}
        return stated.get("reason") == _REFUSED and node.instance in stated.get("message", "")

    if not run.wait(is_named, limit=_REASON_LIMIT):
        raise StepFailedError(
            "The NodeClaim of a protected instance doesn't say within 5 minutes why it stays (condition "
            f"{nodeclaim.INSTANCE_TERMINATING}=False, {_REFUSED}){reasons.because(run)}."
        )
