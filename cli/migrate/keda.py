"""Runs ``tenon migrate keda``: CapacityBuffers as YAML, in place of KEDA's ScaledObjects of pause pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli import decoding
from cli.cluster import manifest_reader
from cli.errors import CommandError, UsageError
from cli.migrate import scaled_objects
from cli.migrate.scaled_object_notes import not_carried_over
from cli.migrate.scaled_objects import NotExpressibleError, ScaledObject
from cli.printable import echo
from shared.api.capacity_buffer import Scalable
from shared.api.decode import ref_of
from shared.api.yaml_documents import writer
from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.decoding import Raw
    from shared.snapshot import InvalidObject


class Conversion(Struct, kw_only=True):
    """The buffer of a ScaledObject as ``objects``, with ``notes`` on fields that it doesn't have; or why not."""

    key: str
    target: str = ""
    objects: Sequence[dict[str, Any]] = ()
    notes: tuple[str, ...] = ()
    left_out: str = ""


def convert(paths: Sequence[Path]) -> None:
    """Print the buffers of all ScaledObjects that can be expressed, and name the others on standard error.

    Raises:
        UsageError: a file can't be read, or there is no ScaledObject.
        CommandError: ScaledObjects were left out.
    """
    all_conversions = conversions(paths)
    expressed = [conversion for conversion in all_conversions if not conversion.left_out]
    left_out = [conversion for conversion in all_conversions if conversion.left_out]
    for each in expressed:
        echo(f"# In place of ScaledObject {each.key} and Deployment {each.target}.")
        for note in each.notes:
            echo(f"# Not carried over: {note}.")
        echo(writer.documents(each.objects, width=1000).rstrip())
    for each in left_out:
        echo(f"left out ScaledObject {each.key}: {each.left_out}", err=True)
    if left_out:
        raise CommandError(f"{plural(len(left_out), 'ScaledObject')} left out")


def conversions(paths: Sequence[Path]) -> list[Conversion]:
    """What becomes of each ScaledObject of the files; those that can't be decoded come last.

    Raises:
        UsageError: a file can't be read, or there is no ScaledObject.
    """
    by_kind: dict[str, list[Raw]] = {}
    for path in paths:
        for kind, raw in manifest_reader.read_objects(path).items():
            by_kind.setdefault(kind, []).extend(raw)
    if not by_kind.get("ScaledObject"):
        raise UsageError(
            "the files have no ScaledObject: give the output of `kubectl get scaledobjects,deployments -A -o yaml`"
        )
    deployments = _deployments(by_kind)
    done: list[Conversion] = []
    invalid: list[InvalidObject] = []
    for value in by_kind["ScaledObject"]:
        done += [
            _conversion(scaled, decoding.as_mapping(value), deployments)
            for scaled in decoding.decode_objects([value], ScaledObject, invalid)
        ]
    keys = ((f"{each.ref.namespace or 'default'}/{each.ref.name}", each.problems[0]) for each in invalid)
    return [*done, *(Conversion(key=key, left_out=problem) for key, problem in keys)]


def _conversion(scaled: ScaledObject, value: dict[str, Any], deployments: dict[str, dict[str, Any]]) -> Conversion:
    try:
        objects = scaled_objects.buffer_objects(scaled, deployments)
    except NotExpressibleError as error:
        return Conversion(key=scaled.key, left_out=str(error))
    notes = tuple(not_carried_over(value.get("spec") or {}))
    return Conversion(key=scaled.key, target=scaled.target, objects=objects, notes=notes)


def _deployments(by_kind: dict[str, list[Raw]]) -> dict[str, dict[str, Any]]:
    """The Deployments that can be decoded, as JSON values by ``namespace/name``."""
    unreadable: list[InvalidObject] = []
    raw = by_kind.get("Deployment", [])
    readable = [obj for obj in raw if decoding.decode_objects([obj], Scalable, unreadable)]
    values = [decoding.as_mapping(obj) for obj in readable]
    return {f"{ref.namespace or 'default'}/{ref.name}": value for value in values for ref in (ref_of(value),)}
