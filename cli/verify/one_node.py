"""The steps of the run's NodePool and its first node: ready to launch, one node up with its tags, and empty again."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from cli.verify import nodes, objects, reasons
from cli.verify.result import Proof, StepFailedError
from cli.verify.verification import is_true
from shared.base.plurals import plural
from shared.cluster import resources

if TYPE_CHECKING:
    from cli.verify.objects import Obj
    from cli.verify.verification import Verification

_POOL_LIMIT = timedelta(minutes=3)


def verify_pool(run: Verification) -> Proof:
    """The run's node class and NodePool become Ready."""
    created = run.now()
    run.create(resources.NODE_CLASSES, objects.node_class(run.id, class_spec(run)))
    run.create(resources.NODE_POOLS, objects.node_pool(run.id))
    node_class = None
    for resource in (resources.NODE_CLASSES, resources.NODE_POOLS):
        stored = run.wait(
            lambda resource=resource: (  # type: ignore[misc]  # its default
                obj if (obj := run.get(resource, run.name)) is not None and is_true(obj, "Ready") else None
            ),
            limit=_POOL_LIMIT,
        )
        if stored is None:
            raise StepFailedError(f"{resource.kind} {run.name} isn't Ready after 3 minutes{reasons.because(run)}.")
        node_class = node_class or stored
    assert node_class is not None
    status = node_class.get("status", {})
    counts = [(status.get("subnets"), "subnet"), (status.get("securityGroups"), "security group")]
    counted = ", ".join(plural(len(values or ()), noun) for values, noun in [*counts, (status.get("amis"), "image")])
    return Proof(sentence=f"The node class found {counted}.", measured={"Ready": run.seconds_since(created)})


def class_spec(run: Verification) -> Obj:
    """The spec that the run's class has: that of the chosen class, or one for the cluster's own network."""
    if not run.settings.node_class:
        return objects.default_class_spec(run.description)
    chosen = run.get(resources.NODE_CLASSES, run.settings.node_class)
    if chosen is None:
        raise StepFailedError(f'There is no EC2NodeClass "{run.settings.node_class}".')
    spec: Obj = chosen["spec"]
    return spec


def verify_node(run: Verification) -> Proof:
    """A pending pod gets a node, its tags are visible, and the node goes when it is empty."""
    (node,) = nodes.bring_up(run, "first")
    nodes.delete_pods(run, "first")
    empty = nodes.wait_until_gone(run, [node.claim], failure="The empty node and its instance weren't removed")
    measured = {**node.measured, "gone after its pod": empty}
    return Proof(
        sentence=f"A pending pod ran after {node.measured['pod running']:.0f} s, and its node was gone {empty:.0f} s "
        "after the pod.",
        measured=measured,
    )
