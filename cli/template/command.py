"""``tenon template`` and ``tenon publish``: their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import errors_as_one_line

Name = Annotated[str, typer.Argument(metavar="NAME", help="The EKS cluster's name.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("-c", metavar="KEY=VALUE", help="A setting of the deployment, as in cdk deploy -c; repeatable."),
]


@examples("tenon template prod > template.json", "tenon template prod -c relay=webhook -c clusterSide=printed")
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
    """
    with errors_as_one_line("template"):
        from cli.template.run import template as run

        run(name, settings or [], region=region)


@examples(
    "tenon publish prod --bucket my-artifacts --prefix tenon",
    "tenon publish prod --bucket my-artifacts --template template.json",
)
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
    """
    with errors_as_one_line("publish"):
        from cli.template.run import publish as run

        run(name, settings or [], bucket=bucket, prefix=prefix, file=file)
