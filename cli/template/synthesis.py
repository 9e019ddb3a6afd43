"""The template of one cluster with its assets, for a bucket that parameters name (infra/bucket_template.py)."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from cli.errors import CommandError, UsageError
from cli.printable import echo
from infra import installation
from infra.cluster import resource_names
from infra.options import context_keys, stack_options
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_NODE = "JSII_NODE"
"""The variable by which the CDK's library is given another Node.js than that on PATH."""
_OTHER_KEYS: Mapping[str, str] = {
    "cluster": "the cluster is the argument NAME",
    "clusters": "one template is for one cluster, the argument NAME",
    "fleet": "the stacks of a fleet are deployed together, by cdk deploy (docs/fleets.md)",
}


class Asset(Struct):
    """A file or folder of the assembly that the stack needs in the bucket; ``key`` is without the prefix."""

    path: Path
    key: str


class Synthesised(Struct):
    """A stack's name, template and assets."""

    stack: str
    template: dict[str, Any]
    assets: tuple[Asset, ...]


class Request(Struct):
    """A cluster whose stack is to be synthesised, with valid options."""

    cluster: str
    context: Mapping[str, str]
    has_code: bool
    """Whether the functions' code is included."""


def request(cluster: str, pairs: Sequence[str]) -> Request:
    """The request of a command line. ``pairs`` are KEY=VALUE.

    Raises:
        UsageError: the name, a key or a value is invalid, or not for one template.
    """
    try:
        context = context_keys.given(pairs)
        for key in _OTHER_KEYS.keys() & context.keys():
            raise UsageError(f"-c {key}={context[key]}: {_OTHER_KEYS[key]}")
        (name,) = stack_options.clusters({"cluster": [cluster]})
        options = stack_options.parse(context, cluster=name)
    except stack_options.OptionError as error:
        raise UsageError(str(error).replace("-c cluster=", "NAME=")) from error
    if options.relay == "pod" and options.apply and not options.relay_image:
        raise UsageError(
            "-c relay=pod: no image is built here; build it from relay/Dockerfile, and give -c relayImage=URI"
        )
    return Request(name, context, has_code=options.bundle == "full")


def synthesise(requested: Request, *, region: str, folder: Path) -> Synthesised:
    """Synthesise the cluster's stack into ``folder``; without a Region, for any.

    Raises:
        UsageError: an option is not for this Region.
        MissingExtraError: the CDK is missing.
        CommandError: Node.js is missing, or the functions' code can't be bundled.
    """
    _check_cdk()
    # These imports start Node.js.
    from infra import synthesis  # noqa: PLC0415
    from infra.bundle import bucket_template  # noqa: PLC0415

    stack = resource_names.stack(requested.cluster)
    echo(f"Synthesising {stack} (the first time, packages are fetched)", err=True)
    context = {**requested.context, "cluster": [requested.cluster]}
    try:
        synthesis.make(context=context, out=folder, region=region or None, for_any_bucket=True)
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
    except (*synthesis.FAILURES, OSError) as error:
        raise CommandError(str(error)) from error
    manifest = json.loads((folder / f"{stack}.assets.json").read_text())
    template = json.loads((folder / f"{stack}.template.json").read_text())
    prefix = f"${{{bucket_template.PREFIX}}}"
    assets = _assets(manifest["files"], folder, prefix=prefix, without=f"{stack}.template.json")
    return Synthesised(stack, template, tuple(sorted(assets, key=lambda asset: asset.key)))


def _check_cdk() -> None:
    """Check that the CDK's library can run.

    Raises:
        MissingExtraError: it is missing.
        CommandError: Node.js is missing.
    """
    installation.require("deploy", "the template")
    if shutil.which(os.environ.get(_NODE) or "node") is None:
        raise CommandError("Node.js isn't on PATH, which the CDK's library needs: install version 20 or newer")


def _assets(files: Mapping[str, Any], folder: Path, *, prefix: str, without: str) -> Iterator[Asset]:
    """The assets of a manifest as the CDK writes it, without the template."""
    for file in files.values():
        if file["source"]["path"] != without:
            (destination,) = file["destinations"].values()
            yield Asset(folder / file["source"]["path"], destination["objectKey"].removeprefix(prefix))
