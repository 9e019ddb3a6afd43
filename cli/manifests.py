"""``tenon manifests``: the objects that Tenon needs in the cluster, as YAML for ``kubectl apply`` or GitOps."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 (typer reads the annotations)
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import UsageError, errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.cluster.kubernetes.cluster_manifests import Obj

_PATH = re.compile(r"[A-Za-z0-9_-]{32,256}")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/[\w+=,.@/-]+")
_IMAGE = re.compile(r"([\w.-]+(:\d+)?/)?[a-z0-9._/-]+(:[\w.-]{1,128})?(@sha256:[0-9a-f]{64})?")


def manifests(
    cluster: Annotated[str, typer.Argument(metavar="NAME", help="The EKS cluster's name.")],
    region: Annotated[str, typer.Option(metavar="REGION", help="The cluster's AWS Region.")] = "us-east-1",
    image: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="For -c relay=pod: the relay's image, built from relay/Dockerfile."),
    ] = "",
    role_arn: Annotated[
        str,
        typer.Option(metavar="ARN", help="The relay's role if it gets it by IRSA: the stack's output RelayRoleArn."),
    ] = "",
    tolerations: Annotated[
        str,
        typer.Option(
            metavar="TAINTS",
            help="Taints that the relay tolerates, KEY[=VALUE][:EFFECT] separated by commas; * for all.",
        ),
    ] = "",
    webhook_url: Annotated[
        str, typer.Option(metavar="URL", help="For -c relay=webhook: the stack's output WebhookUrl.")
    ] = "",
    webhook_path: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For -c relay=webhook: the file with the URL's secret path, whose digest was deployed."
        ),
    ] = None,
    *,
    buffers: Annotated[
        bool,
        typer.Option("--buffers", help="With the RBAC for -c bufferQueues, bufferAlarms and bufferEvents."),
    ] = False,
    node_groups: Annotated[bool, typer.Option("--node-groups", help="With the RBAC for -c nodeGroups=on.")] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Only the RBAC for -c mode=shadow, which only reads.")
    ] = False,
) -> None:
    """Print the objects for the cluster: CustomResourceDefinitions, RBAC, and the relay's pods or the webhook.

    `cdk deploy` applies them itself, unless it is run with -c clusterSide=printed.

    For example:

      tenon manifests prod --shadow | kubectl apply -f -
      tenon manifests prod --image REGISTRY/tenon-relay:0.1.0 | kubectl apply -f -
    """
    with errors_as_one_line("manifests"), progress("Rendering manifests"):
        from infra import function_sizes  # noqa: PLC0415 (slow to import)
        from infra.cluster.kubernetes import cluster_manifests  # noqa: PLC0415 (slow to import)

        _check(cluster, region=region, image=image, role_arn=role_arn)
        tolerated = _tolerations(tolerations)
        webhook = _webhook(webhook_url, webhook_path)
    if shadow:
        typer.echo(cluster_manifests.to_yaml(cluster_manifests.access([function_sizes.SHADOW])))
        return
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
            region=region,
            image=image,
            role_arn=role_arn,
            tolerations=tolerated,
        )
    typer.echo(cluster_manifests.to_yaml([*objects, *webhook]))


def _check(cluster: str, *, region: str, image: str, role_arn: str) -> None:
    """Refuse names that AWS or the kubelet would refuse later.

    Raises:
        UsageError: a name is invalid.
    """
    from cli.cluster import regions  # noqa: PLC0415 (next to its use)
    from infra.options import stack_options  # noqa: PLC0415 (slow to import)

    try:
        stack_options.cluster_name(cluster, option="NAME")
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
    regions.existing(region)
    if image and not _IMAGE.fullmatch(image):
        raise UsageError(f"--image={image}: must be an image such as REGISTRY/tenon-relay:0.1.0")
    if role_arn and not _ROLE.fullmatch(role_arn):
        raise UsageError(f"--role-arn={role_arn}: must be a role's ARN, such as arn:aws:iam::123456789012:role/relay")


def _webhook(url: str, path: Path | None) -> list[Obj]:
    """The webhook's configuration, if there is one.

    Raises:
        UsageError: half of its URL is missing, or the file can't be read.
    """
    from cli.file_contents import read_bytes  # noqa: PLC0415 (slow to import)
    from infra.cluster.kubernetes import webhook_configuration  # noqa: PLC0415 (the same)

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


def _tolerations(text: str) -> tuple[Mapping[str, str], ...]:
    """The tolerations of the option.

    Raises:
        UsageError: they can't be parsed.
    """
    from infra.options import formats, stack_options  # noqa: PLC0415 (slow to import)

    try:
        return tuple(formats.toleration(part, "--tolerations") for part in text.split(",") if part)
    except stack_options.OptionError as error:
        raise UsageError(str(error)) from error
