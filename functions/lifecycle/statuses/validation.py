"""Objects that can't be decoded or are invalid: an event, and conditions ValidationSucceeded and Ready on our kinds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from shared.api import labels as names
from shared.api.meta import ApiStruct, Condition, ObjectMeta, with_condition
from shared.api.nodeclass import READY, VALIDATION_SUCCEEDED
from shared.api.validation import kubelet
from shared.base.struct import with_fields
from shared.cluster import resources, writes

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from functions.lifecycle.context import ReconcileContext
    from shared.snapshot import InvalidObject, Snapshot


class _ConditionsOnly(ApiStruct):
    conditions: list[Condition] = []


class _UndecodedObject(ApiStruct):
    """Any object's metadata and conditions, for objects whose other fields can't be decoded."""

    metadata: ObjectMeta = ObjectMeta()
    status: _ConditionsOnly = _ConditionsOnly()


def write_invalid(context: ReconcileContext, snapshot: Snapshot) -> None:
    """Record an event on each invalid object; write conditions to those of our API groups."""
    for invalid_object in snapshot.invalid:
        context.attempt(invalid_object.ref, partial(_write_invalid, context, invalid_object))


def invalid_conditions(
    conditions: list[Condition], problems: Collection[str], *, generation: int, now: datetime
) -> list[Condition]:
    """The conditions of an invalid NodePool or node class: not valid and not ready, with every problem."""
    message, reason = "; ".join(problems), kubelet.reason(problems, otherwise="Invalid")
    for type_ in (VALIDATION_SUCCEEDED, READY):
        conditions = with_condition(
            conditions, type_, status=False, reason=reason, message=message, now=now, generation=generation
        )
    return conditions


def _write_invalid(context: ReconcileContext, invalid_object: InvalidObject) -> None:
    ref = invalid_object.ref
    message = "; ".join(invalid_object.problems)
    context.recorder.record(ref, "Warning", "Invalid", message)
    context.logger.warning("Invalid object", extra={"object": str(ref), "why": message})
    resource = resources.for_kind(ref.api_version, ref.kind)
    if resource.group not in {names.GROUP, names.AWS_GROUP}:
        return

    def change(current: _UndecodedObject) -> _UndecodedObject:
        conditions = invalid_conditions(
            current.status.conditions, invalid_object.problems, generation=current.metadata.generation, now=context.now
        )
        return with_fields(current, status=_ConditionsOnly(conditions=conditions))

    current = writes.read(context.client, resource, ref.name, _UndecodedObject)
    writes.update_status(context.client, resource, current, change)
