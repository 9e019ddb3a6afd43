"""``tenon manifests``: the objects that Tenon needs in the cluster, as YAML for ``kubectl apply`` or GitOps."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 (typer reads the annotations)
from typing import Annotated

import typer

from cli.errors import UsageError, errors_as_one_line
from cli.file_contents import read_bytes
from infra import cluster_manifests, function_sizes, stack_options, webhook_configuration

_PATH = re.compile(r"[A-Za-z0-9_-]{32,256}")


def manifests(
    cluster: Annotated[str, typer.Argument(help="The EKS cluster's name.")],
    region: Annotated[str, typer.Option(help="The cluster's AWS Region.")] = "us-east-1",
    image: Annotated[str, typer.Option(help="For -c relay=pod: the relay's image, built from relay/Dockerfile.")] = "",
    role_arn: Annotated[
        str, typer.Option(help="The relay's role if it gets it by IRSA: the stack's output RelayRoleArn.")
    ] = "",
    tolerations: Annotated[
        str, typer.Option(help="Taints that the relay tolerates, KEY[=VALUE][:EFFECT] separated by commas; * for all.")
    ] = "",
    webhook_url: Annotated[str, typer.Option(help="For -c relay=webhook: the stack's output WebhookUrl.")] = "",
    webhook_path: Annotated[
        Path | None,
        typer.Option(help="For -c relay=webhook: the file with the URL's secret path, whose digest was deployed."),
    ] = None,
    *,
    buffers: Annotated[
        bool,
        typer.Option("--buffers", help="With RBAC of the function for -c bufferQueues, bufferAlarms, bufferEvents."),
    ] = False,
    node_groups: Annotated[bool, typer.Option("--node-groups", help="With RBAC for -c nodeGroups=on.")] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Only the RBAC for -c mode=shadow, which only reads.")
    ] = False,
) -> None:
    """Print the objects for the cluster: CustomResourceDefinitions, RBAC, and the relay's pods or the webhook.

    For example:

      tenon manifests prod --shadow | kubectl apply -f -

      tenon manifests prod --region eu-central-1 --image REGISTRY/tenon-relay:0.1.0 | kubectl apply -f -
    """
    if shadow:
        typer.echo(cluster_manifests.to_yaml(cluster_manifests.access([function_sizes.SHADOW])))
        return
    with errors_as_one_line("manifests"):
        tolerated = _tolerations(tolerations)
        webhook = _webhook(webhook_url, webhook_path)
    optional = {
        function_sizes.BUFFERS: buffers,
        function_sizes.NODE_GROUPS: node_groups,
        function_sizes.RELAY: not image and not webhook,
    }
    functions = [name for name in function_sizes.ALL if optional.get(name, True)]
    objects = [*cluster_manifests.kinds(), *cluster_manifests.access(functions, node_groups=node_groups)]
    if image:
        objects += cluster_manifests.relay(
            cluster=cluster,
            bus=cluster_manifests.bus_name(cluster),
            region=region,
            image=image,
            role_arn=role_arn,
            tolerations=tolerated,
        )
    typer.echo(cluster_manifests.to_yaml([*objects, *webhook]))


def _webhook(url: str, path: Path | None) -> list[cluster_manifests.Obj]:
    """The webhook's configuration, if there is one.

    Raises:
        UsageError: half of its URL is missing, or the file can't be read.
    """
    if not url and path is None:
        return []
    if not url or path is None:
        raise UsageError("--webhook-url and --webhook-path: give both")
    if not url.startswith("https://"):
        raise UsageError(f"--webhook-url={url}: must be an https:// URL, the stack's output WebhookUrl")
    secret = read_bytes(path).decode().strip()
    if not _PATH.fullmatch(secret):
        raise UsageError(f"--webhook-path={path}: must have one line of 32 or more letters, digits, - and _")
    return [webhook_configuration.configuration(f"{url.rstrip('/')}/{secret}")]


def _tolerations(text: str) -> tuple[dict[str, str], ...]:
    """The tolerations of the option.

    Raises:
        UsageError: they can't be parsed.
    """
    try:
        return stack_options.tolerations([part for part in text.split(",") if part], option="--tolerations")
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
