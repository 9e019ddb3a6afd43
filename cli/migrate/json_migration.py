"""The outputs of ``tenon migrate cluster-autoscaler --json``, also with ``--undo``, and of ``migrate karpenter``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.json_output import Output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.migrate.planning import MigrationPlan


class FlagResult(Output, frozen=True, kw_only=True):
    """A flag of Cluster Autoscaler and what becomes of it; ``option`` is Tenon's, if there is one."""

    flag: str
    value: str
    outcome: str
    note: str
    option: str


class GroupFlag(Output, frozen=True, kw_only=True):
    """A flag that chooses node groups."""

    flag: str
    note: str


class Migration(Output, frozen=True, kw_only=True):
    """The plan, and what was ``changed``. ``obstacles`` prevent it."""

    deployment: str
    replicas: int
    flags: list[FlagResult]
    groups: list[str]
    group_flags: list[GroupFlag]
    options: dict[str, str]
    notes: list[str]
    obstacles: list[str]
    applied: bool
    changed: list[str]


class UndoneMigration(Output, frozen=True, kw_only=True):
    """With ``--undo``: the Deployment with the replicas that it has again, and what was changed."""

    deployment: str
    replicas: int
    changed: list[str]


class KarpenterObject(Output, frozen=True, kw_only=True):
    """An object of Karpenter's, and what differs for it; ``namespace`` is "" for objects that have none.

    ``refused``: Tenon doesn't use the object until the differences are corrected.
    """

    kind: str
    namespace: str
    name: str
    refused: bool
    differences: list[str]


class KarpenterMigration(Output, frozen=True, kw_only=True):
    """What differs for each object, those that Tenon refuses first; ``refused`` is how many these are."""

    objects: list[KarpenterObject]
    refused: int


def output(plan: MigrationPlan, changed: Sequence[str], *, applied: bool) -> Migration:
    """The plan, with what was changed."""
    return Migration(
        deployment=plan.deployment.reference,
        replicas=plan.deployment.spec.replicas,
        flags=[
            FlagResult(
                flag=result.flag.name,
                value=result.flag.value,
                outcome=result.outcome,
                note=result.note,
                option=result.option,
            )
            for result in plan.translation.results
        ],
        groups=list(plan.choice.names),
        group_flags=[GroupFlag(flag=flag, note=note) for flag, note in plan.choice.notes],
        options=dict(plan.data),
        notes=list(plan.notes),
        obstacles=list(plan.obstacles),
        applied=applied,
        changed=list(changed),
    )
