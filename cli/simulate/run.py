"""Runs ``tenon simulate``: the scheduling decision for the objects in some files, without a cluster."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cli import json_output, problem_files
from cli.cluster import price_origin
from cli.cluster.manifest_reader import region_of
from cli.cluster.offerings import CatalogOfferings
from cli.cluster.reader import region_catalog
from cli.errors import UsageError
from cli.printable import echo
from cli.progress import progress
from cli.simulate import decision_output, json_decision
from shared.api.meta import ObjectMeta
from shared.api.nodeclass import EC2NodeClass, EC2NodeClassSpec
from shared.api.quantity import QuantityError
from shared.base.struct import with_fields
from shared.scheduling.scheduler import schedule

_ASSUMED_CLASS = EC2NodeClassSpec(ami_family="AL2023")

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.problem_files import SimulationInput
    from shared.cloud_provider import ResolvedNodePools
    from shared.snapshot import Snapshot


def read(files: Sequence[Path]) -> SimulationInput:
    """The objects in the files.

    Raises:
        UsageError: a file or an object isn't valid.
    """
    now = datetime.now(UTC)
    try:
        return problem_files.simulation_input(problem_files.read(files), now=now, offered=_offered_by_ec2)
    except QuantityError as error:
        raise UsageError(str(error)) from error


def _offered_by_ec2(snapshot: Snapshot) -> tuple[ResolvedNodePools, list[str]]:
    """What the NodePools can launch of EC2's instance types; node classes that the files lack are assumed."""
    raw, prices = region_catalog(region_of(snapshot))
    known = {c.name for c in snapshot.node_classes} | {i.ref.name for i in snapshot.invalid}
    missing = sorted({p.spec.template.spec.node_class_ref.name for p in snapshot.node_pools} - known)
    assumed = [EC2NodeClass(metadata=ObjectMeta(name=name), spec=_ASSUMED_CLASS) for name in missing]
    complete = with_fields(snapshot, node_classes=(*snapshot.node_classes, *assumed))
    notes = [f"EC2NodeClass {name} isn't in the files: Amazon Linux 2023 in every zone is assumed" for name in missing]
    notes.insert(0, f"no file lists instanceTypes: those of EC2 in {raw.region} are used")
    return CatalogOfferings(raw=raw).resolve_pools(complete), [*notes, *([prices.note] if prices.note else ())]


def show(simulation: SimulationInput, *, as_json: bool) -> None:
    """Print the decision for the objects."""
    for invalid in simulation.invalid:
        for problem in invalid.problems:
            echo(f"{invalid.ref}: {problem}", err=True)
    for note in simulation.notes:
        echo(f"note: {note}", err=True)
    with progress("Deciding"):
        decision = schedule(simulation.problem)
    if as_json:
        echo(json_output.text("simulate", json_decision.output(decision, simulation.refused)))
    else:
        caveat = "" if simulation.lists_types else price_origin.MADE_UP.caveat
        decision_output.show(decision, simulation.refused, caveat=caveat)
