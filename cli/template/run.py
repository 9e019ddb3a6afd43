"""Runs ``tenon template``, which prints a cluster's template, and ``tenon publish``, which uploads it with the code."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from cli.cluster import regions
from cli.errors import CommandError, UsageError
from cli.printable import echo
from cli.template.synthesis import request, synthesise
from cli.template.upload import Bucket, upload
from infra import installation
from shared.api import labels

if TYPE_CHECKING:
    from collections.abc import Sequence


def template(name: str, settings: Sequence[str], *, region: str) -> None:
    """Print the template of the cluster; without a Region, for any."""
    requested = request(name, settings)
    if region:
        regions.known(region)
    with tempfile.TemporaryDirectory() as folder:
        synthesised = synthesise(requested, region=region, folder=Path(folder) / "cdk.out")
    echo(json.dumps(synthesised.template, indent=1))


def publish(name: str, settings: Sequence[str], *, bucket: str, prefix: str, file: Path | None) -> None:
    """Upload the template and the code of the cluster's stack, and print the template's URL."""
    requested = request(name, settings)
    if not requested.has_code:
        raise UsageError("-c bundle=source: leaves the functions' code out, and there is nothing to publish")
    installation.require("deploy", "tenon publish")
    target = Bucket(bucket, prefix)
    with tempfile.TemporaryDirectory() as folder:
        synthesised = synthesise(requested, region=target.region, folder=Path(folder) / "cdk.out")
        document = json.dumps(_with_defaults(synthesised.template, target), indent=1)
        if file is not None:
            _write(file, document)
        echo(f"Publishing to s3://{bucket} in {target.region}", err=True)
        for asset in synthesised.assets:
            upload(target, asset.key, asset.path)
        path = Path(folder) / "template.json"
        path.write_text(document)
        key = f"{hashlib.sha256(document.encode()).hexdigest()}.json"
        upload(target, key, path)
    echo(_next_step(synthesised.stack, name, target, key), err=True)
    echo(target.url(key))


def _with_defaults(document: dict[str, object], bucket: Bucket) -> dict[str, object]:
    """The template whose parameters have this bucket as their default."""
    from infra.bundle import bucket_template  # noqa: PLC0415 (starts Node.js)

    parameters = document["Parameters"]
    assert isinstance(parameters, dict)
    defaults = {bucket_template.BUCKET: bucket.name, bucket_template.PREFIX: bucket.prefix}
    own = {key: {**parameters[key], "Default": value} for key, value in defaults.items()}
    return {**document, "Parameters": {**parameters, **own}}


def _next_step(stack: str, cluster: str, bucket: Bucket, key: str) -> str:
    return (
        "Create the stack with (update-stack for a later version):\n"
        f"  aws cloudformation create-stack --region {bucket.region} --stack-name {stack} \\\n"
        f"    --capabilities CAPABILITY_IAM --tags Key={labels.CLUSTER_NAME_TAG},Value={cluster} \\\n"
        f"    --template-url {bucket.url(key)}"
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--template={path}: {error.strerror or error}") from error
