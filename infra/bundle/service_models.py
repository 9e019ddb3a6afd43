"""The SDK's models of services that a bundle brings: the operations and parameters that its function sends.

Which SDK Lambda's runtime has depends on the Region and the day ("Runtime-included SDK versions",
docs.aws.amazon.com/lambda/latest/dg/lambda-python.html). An older one refuses parameters that it doesn't know
(ReservedCapacityOptions, NestedVirtualization), and leaves out of answers what it can't name (Interruptible). So a
bundle has EC2's model of the locked version, which botocore finds before its own by ``AWS_DATA_PATH``. It has the
function's operations only, without documentation: a client of the whole model, which has 800, takes 0.12 s of a vCPU
at each cold start, this one 0.02 s.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

from botocore import xform_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

FOLDER = "models"
"""In a bundle; botocore's layout below it."""
SERVICES = ("ec2",)
"""The services of which Lambda's runtime may lack what functions send or read. A test compares the others."""
_WORD = re.compile(r"\w+")
_FOR_DOCUMENTATION = frozenset({"documentation", "documentationUrl", "enum"})
"""What botocore doesn't need for a call. It checks no enumeration."""


def files(sdk: Path, modules: Iterable[Path]) -> dict[str, bytes]:
    """By path in the bundle: the models for a function with these modules, from the folder with botocore.

    A module that calls an operation, or its paginator, has its name in snake case.

    Raises:
        FileNotFoundError: botocore has no model of a service.
    """
    words = frozenset(word for module in modules for word in _WORD.findall(module.read_text()))
    models: dict[str, bytes] = {}
    for service in SERVICES:
        newest = max((sdk / "botocore" / "data" / service).glob("*/service-2.json.gz"))
        model = json.loads(gzip.decompress(newest.read_bytes()), object_hook=_without_documentation)
        if operations := [name for name in model["operations"] if xform_name(name) in words]:
            path = f"{FOLDER}/{service}/{newest.parent.name}/service-2.json"
            models[path] = json.dumps(reduced(model, operations), separators=(",", ":")).encode()
    return models


def reduced(model: Mapping[str, Any], operations: Iterable[str]) -> dict[str, Any]:
    """The model with these operations only, and the shapes that they use."""
    kept = {name: model["operations"][name] for name in operations}
    shapes: dict[str, Any] = {}
    pending = list(_shapes_in(kept))
    while pending:
        name = pending.pop()
        if name not in shapes:
            shapes[name] = model["shapes"][name]
            pending += _shapes_in(shapes[name])
    return {**model, "operations": kept, "shapes": dict(sorted(shapes.items()))}


def _shapes_in(part: object) -> Iterator[str]:
    """The names of the shapes that a part of the model refers to."""
    if isinstance(part, dict):
        if isinstance(part.get("shape"), str):
            yield part["shape"]
        for value in part.values():
            yield from _shapes_in(value)
    elif isinstance(part, list):
        for value in part:
            yield from _shapes_in(value)


def _without_documentation(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in _FOR_DOCUMENTATION}
