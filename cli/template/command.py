"""``tenon template`` prints a cluster's template, ``tenon publish`` uploads it with the functions' code."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import CommandError, UsageError, errors_as_one_line

if TYPE_CHECKING:
    from cli.template.upload import Bucket

Name = Annotated[str, typer.Argument(metavar="NAME", help="The EKS cluster's name.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("-c", metavar="KEY=VALUE", help="A setting of the deployment, as in cdk deploy -c; repeatable."),
]


def template(
    name: Name,
    settings: Settings = None,
    region: Annotated[
        str, typer.Option(metavar="REGION", help="The stack's AWS Region; without it, for any Region.")
    ] = "",
) -> None:
    """Print the CloudFormation template for a cluster. Nothing is read from AWS or uploaded.

    The template's parameters AssetsBucket and AssetsPrefix name the bucket with the functions' code, where
    `tenon publish` puts it.

    For example:

      tenon template prod > template.json
      tenon template prod -c relay=webhook -c clusterSide=printed
    """
    with errors_as_one_line("template"):
        from cli.cluster import regions  # noqa: PLC0415 (slow to import)
        from cli.template.synthesis import request, synthesise  # noqa: PLC0415 (the same)

        requested = request(name, settings or [])
        if region:
            regions.known(region)
        with tempfile.TemporaryDirectory() as folder:
            synthesised = synthesise(requested, region=region, folder=Path(folder) / "cdk.out")
        typer.echo(json.dumps(synthesised.template, indent=1))


def publish(
    name: Name,
    bucket: Annotated[
        str, typer.Option(metavar="BUCKET", help="Your S3 bucket, in the Region of the stack.", show_default=False)
    ],
    prefix: Annotated[str, typer.Option(metavar="PREFIX", help="A folder in the bucket.", show_default=False)] = "",
    settings: Settings = None,
    file: Annotated[
        Path | None, typer.Option("--template", metavar="FILE", help="Write the template to a file too.")
    ] = None,
) -> None:
    """Upload a cluster's template and the functions' code to a bucket, and print the template's URL.

    Objects are named by their contents: what is in the bucket isn't uploaded again, and the URL only changes with the
    template. The command that creates the stack is printed too, on standard error.

    For example:

      tenon publish prod --bucket my-artifacts --prefix tenon
      tenon publish prod --bucket my-artifacts --template template.json
    """
    with errors_as_one_line("publish"):
        from cli.template.synthesis import request, synthesise  # noqa: PLC0415 (slow to import)
        from cli.template.upload import Bucket, upload  # noqa: PLC0415 (the same)

        requested = request(name, settings or [])
        if not requested.has_code:
            raise UsageError("-c bundle=source: leaves the functions' code out, and there is nothing to publish")
        target = Bucket(bucket, prefix)
        with tempfile.TemporaryDirectory() as folder:
            synthesised = synthesise(requested, region=target.region, folder=Path(folder) / "cdk.out")
            document = json.dumps(_with_defaults(synthesised.template, target), indent=1)
            if file is not None:
                _write(file, document)
            typer.echo(f"Publishing to s3://{bucket} in {target.region}", err=True)
            for asset in synthesised.assets:
                upload(target, asset.key, asset.path)
            path = Path(folder) / "template.json"
            path.write_text(document)
            key = f"{hashlib.sha256(document.encode()).hexdigest()}.json"
            upload(target, key, path)
        typer.echo(_next_step(synthesised.stack, name, target, key), err=True)
        typer.echo(target.url(key))


def _with_defaults(document: dict[str, object], bucket: Bucket) -> dict[str, object]:
    """The template whose parameters have this bucket as their default."""
    from infra.bundle import bucket_template  # noqa: PLC0415 (starts Node.js)

    parameters = document["Parameters"]
    assert isinstance(parameters, dict)
    defaults = {bucket_template.BUCKET: bucket.name, bucket_template.PREFIX: bucket.prefix}
    own = {key: {**parameters[key], "Default": value} for key, value in defaults.items()}
    return {**document, "Parameters": {**parameters, **own}}


def _next_step(stack: str, cluster: str, bucket: Bucket, key: str) -> str:
    from shared.api import labels  # noqa: PLC0415 (slow to import)

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
