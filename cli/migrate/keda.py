"""Runs ``tenon migrate keda``: CapacityBuffers as YAML, in place of KEDA's ScaledObjects of pause pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli import decoding
from cli.cluster import manifest_reader
from cli.errors import CommandError, UsageError
from cli.migrate import scaled_objects
from cli.migrate.scaled_objects import NotExpressibleError, ScaledObject
from cli.printable import echo
from shared.api.capacity_buffer import Scalable
from shared.api.decode import ref_of
from shared.api.yaml_documents import writer
from shared.base.plurals import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.decoding import Raw
    from shared.snapshot import InvalidObject


def convert(paths: Sequence[Path]) -> None:
    """Print the buffers of all ScaledObjects that can be expressed, and name the others on standard error.

    Raises:
        UsageError: a file can't be read, or there is no ScaledObject.
        CommandError: ScaledObjects were left out.
    """
    by_kind: dict[str, list[Raw]] = {}
    for path in paths:
        for kind, raw in manifest_reader.read_objects(path).items():
            by_kind.setdefault(kind, []).extend(raw)
    if not by_kind.get("ScaledObject"):
        raise UsageError(
            "the files have no ScaledObject: give the output of `kubectl get scaledobjects,deployments -A -o yaml`"
        )
    invalid: list[InvalidObject] = []
    scaled = decoding.decode_objects(by_kind["ScaledObject"], ScaledObject, invalid)
    deployments = _deployments(by_kind)
    left_out = [(f"{i.ref.namespace or 'default'}/{i.ref.name}", i.problems[0]) for i in invalid]
    for each in scaled:
        try:
            objects = scaled_objects.buffer_objects(each, deployments)
        except NotExpressibleError as error:
            left_out.append((each.key, str(error)))
            continue
        echo(f"# In place of ScaledObject {each.key} and Deployment {each.target}.")
        echo(writer.documents(objects, width=1000).rstrip())
    for key, reason in left_out:
        echo(f"left out ScaledObject {key}: {reason}", err=True)
    if left_out:
        raise CommandError(f"{plural(len(left_out), 'ScaledObject')} left out")


def _deployments(by_kind: dict[str, list[Raw]]) -> dict[str, dict[str, Any]]:
    """The Deployments that can be decoded, as JSON values by ``namespace/name``."""
    unreadable: list[InvalidObject] = []
    raw = by_kind.get("Deployment", [])
    readable = [obj for obj in raw if decoding.decode_objects([obj], Scalable, unreadable)]
    values = [decoding.as_mapping(obj) for obj in readable]
    return {f"{ref.namespace or 'default'}/{ref.name}": value for value in values for ref in (ref_of(value),)}
