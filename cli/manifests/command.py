"""``tenon manifests``: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.command_help import examples
from cli.errors import errors_as_one_line
from cli.printable import echo
from cli.progress import progress

Name = Annotated[str, typer.Argument(metavar="NAME", help="The EKS cluster's name.")]
Region = Annotated[str, typer.Option(metavar="REGION", help="The cluster's AWS Region.")]
Image = Annotated[
    str, typer.Option(metavar="IMAGE", help="For -c relay=pod: the relay's image, built from relay/Dockerfile.")
]
RoleArn = Annotated[
    str, typer.Option(metavar="ARN", help="The relay's role if it gets it by IRSA: the stack's output RelayRoleArn.")
]
Tolerations = Annotated[
    str,
    typer.Option(
        metavar="TAINTS", help="Taints that the relay tolerates, KEY[=VALUE][:EFFECT] separated by commas; * for all."
    ),
]
WebhookUrl = Annotated[str, typer.Option(metavar="URL", help="For -c relay=webhook: the stack's output WebhookUrl.")]
WebhookPath = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="For -c relay=webhook: the file with the URL's secret path, whose digest was deployed."
    ),
]
Buffers = Annotated[
    bool, typer.Option("--buffers", help="With the RBAC for -c bufferQueues, bufferAlarms and bufferEvents.")
]
NodeGroups = Annotated[bool, typer.Option("--node-groups", help="With the RBAC for -c nodeGroups=on.")]
Shadow = Annotated[bool, typer.Option("--shadow", help="Only the RBAC for -c mode=shadow, which only reads.")]


@examples(
    "tenon manifests prod --shadow | kubectl apply -f -",
    "tenon manifests prod --image REGISTRY/tenon-relay:0.1.0 | kubectl apply -f -",
)
def manifests(
    cluster: Name,
    region: Region = "us-east-1",
    image: Image = "",
    role_arn: RoleArn = "",
    tolerations: Tolerations = "",
    webhook_url: WebhookUrl = "",
    webhook_path: WebhookPath = None,
    *,
    buffers: Buffers = False,
    node_groups: NodeGroups = False,
    shadow: Shadow = False,
) -> None:
    """Print the objects for the cluster: CustomResourceDefinitions, RBAC, and the relay's pods or the webhook.

    `cdk deploy` applies them itself, unless it is run with -c clusterSide=printed.
    """
    with errors_as_one_line("manifests"):
        with progress("Rendering manifests"):
            from cli.manifests import run

            relay = run.Relay(image_uri=image, role_arn=role_arn, tolerations=tolerations)
            run.check(cluster, region=region, relay=relay)
            webhook = run.webhook(webhook_url, webhook_path)
            text = run.text(cluster, region, relay, webhook, buffers=buffers, node_groups=node_groups, shadow=shadow)
        echo(text)
