"""``tenon preflight NAME``: what would keep Tenon from working for a cluster, before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.cluster import source  # noqa: TC001 (typer reads the annotations when it runs)
from cli.errors import FAILED, UsageError, errors_as_one_line
from cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cli.cluster.cluster_reference import ClusterReference
    from cli.preflight.finding import Check, Finding
    from shared.base.aws import UntypedClient

_MARKS = {"passed": "✓", "failed": "✗", "unknown": "?"}


def preflight(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The EKS cluster's name.")],
    subnets: Annotated[
        str,
        typer.Option(
            metavar="IDS", help="The subnets that the functions will run in (-c subnets), separated by commas."
        ),
    ] = "",
    context: source.Context = "",
    region: source.Region = "",
    *,
    relay: Annotated[
        str, typer.Option(metavar="RELAY", help="What will watch the cluster (-c relay): function, pod or webhook.")
    ] = "function",
    as_json: source.Json = False,
) -> None:
    """Check a cluster and its account before Tenon is deployed, and say what to do.

    Exit code 0: every check passed; 1: one failed, or can't be read; 2: there is no such cluster. It only reads.

    For example:

      tenon preflight prod --region eu-central-1
      tenon preflight prod --subnets subnet-1,subnet-2 --json
    """
    with errors_as_one_line("preflight"):
        if relay not in {"function", "pod", "webhook"}:
            raise UsageError(f"--relay={relay}: must be function, pod or webhook")
        with progress("Checking the cluster and its account"):
            from cli.cluster import live_reader  # noqa: PLC0415 (slow to import, and --help doesn't need it)
            from cli.cluster.cluster_reference import ClusterReference, resolve  # noqa: PLC0415 (next to its use)

            reference = resolve(ClusterReference(context=context, cluster=name, region=region))
            with live_reader.read_only_aws(reference):
                in_subnets = [part.strip() for part in subnets.split(",") if part.strip()]
                findings = list(_findings(reference, in_subnets, relay=relay))
        if as_json:
            from cli import json_output  # noqa: PLC0415 (slow to import)

            typer.echo(json_output.text("preflight", findings))
        else:
            _show(name, findings)
    raise typer.Exit(0 if all(finding.status == "passed" for finding in findings) else FAILED)


def _findings(reference: ClusterReference, subnets: Sequence[str], *, relay: str) -> Iterator[Finding]:
    import boto3  # noqa: PLC0415 (slow to import)

    from cli.preflight import finding  # noqa: PLC0415 (the same)

    create: Callable[..., Any] = boto3.client
    description = _describe(create("eks"), reference.cluster)
    _, partition, _, region, account, _ = str(description["arn"]).split(":", 5)

    def client(service: str) -> UntypedClient:
        return create(service, region_name=region)

    yield from finding.run(
        [
            *_account_checks(client, description, partition=partition, account=account, region=region, relay=relay),
            *_cluster_checks(client, description, reference, region=region, relay_pod=relay == "pod"),
            *_network_checks(client, description, subnets),
        ]
    )


def _describe(eks: UntypedClient, name: str) -> Mapping[str, Any]:
    """The cluster's description.

    Raises:
        UsageError: there is no such cluster.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415 (slow to import)

    from shared.base.aws import error_code  # noqa: PLC0415 (the same)

    try:
        description: Mapping[str, Any] = eks.describe_cluster(name=name)["cluster"]
    except ClientError as error:
        if error_code(error) == "ResourceNotFoundException":
            raise UsageError(f'no EKS cluster is named "{name}" in this account and Region') from error
        raise
    return description


def _account_checks(
    client: Callable[[str], Any],
    description: Mapping[str, Any],
    *,
    partition: str,
    account: str,
    region: str,
    relay: str,
) -> list[tuple[str, Check]]:
    from cli.preflight import account_checks as checks  # noqa: PLC0415 (slow to import)

    name = str(description["name"])
    needs_issuer = relay == "pod" and partition == "aws-cn"
    issuer = str(description.get("identity", {}).get("oidc", {}).get("issuer", "")) if needs_issuer else ""
    return [
        (checks.AUTHENTICATION, lambda: checks.authentication_mode(description)),
        (checks.TEMPLATE, lambda: checks.template(name, region=region, issuer=issuer, client=client)),
        (checks.CONCURRENCY, lambda: checks.concurrency(client, has_webhook=relay == "webhook")),
        (checks.EBS_KEY, lambda: checks.ebs_key(client, partition=partition, account=account)),
        (checks.SPOT_ROLE, lambda: checks.spot_role(client)),
    ]


def _cluster_checks(
    client: Callable[[str], Any],
    description: Mapping[str, Any],
    reference: ClusterReference,
    *,
    region: str,
    relay_pod: bool,
) -> list[tuple[str, Check]]:
    from cli.cluster import live_reader  # noqa: PLC0415 (slow to import)
    from cli.preflight import cluster_checks as checks  # noqa: PLC0415 (the same)
    from shared.cluster.errors import ApiError  # noqa: PLC0415 (the same)
    from shared.cluster.kubeconfig import KubeconfigError  # noqa: PLC0415 (the same)

    names = [checks.AUTOSCALERS, checks.DEFINITIONS]
    if relay_pod:
        names = [checks.RELAY_IDENTITY, *names, checks.RELAY_NODES]
    try:
        objects = checks.read(live_reader.connect(reference))
    except (ApiError, KubeconfigError) as error:
        reason = str(error)
        return [(name, lambda name=name: [_unknown(name, reason)]) for name in names]  # type: ignore[misc]  # its default
    by_name: dict[str, Check] = {
        checks.RELAY_IDENTITY: lambda: checks.relay_identity(objects, description, region=region, client=client),
        checks.AUTOSCALERS: lambda: checks.other_autoscalers(objects, description),
        checks.DEFINITIONS: lambda: checks.definitions(objects, description),
        checks.RELAY_NODES: lambda: checks.relay_nodes(objects),
    }
    return [(name, by_name[name]) for name in names]


def _unknown(name: str, reason: str) -> Finding:
    from cli.preflight.finding import Finding  # noqa: PLC0415 (slow to import)

    return Finding(check=name, status="unknown", summary=f"the cluster can't be read: {reason}")


def _network_checks(
    client: Callable[[str], Any], description: Mapping[str, Any], subnets: Sequence[str]
) -> list[tuple[str, Check]]:
    from cli.preflight import network_checks as checks  # noqa: PLC0415 (slow to import)

    of_cluster = list(description.get("resourcesVpcConfig", {}).get("subnetIds", ()))
    return [
        (checks.SUBNETS, lambda: checks.free_addresses(client, of_cluster)),
        (checks.REACHABILITY, lambda: checks.reachability(client, description, subnets=subnets)),
    ]


def _show(name: str, findings: Sequence[Finding]) -> None:
    from cli import terminal  # noqa: PLC0415 (slow to import)
    from shared.base.plurals import plural  # noqa: PLC0415 (the same)

    console = terminal.console()
    open_findings = sum(finding.status != "passed" for finding in findings)
    style = terminal.BAD if open_findings else terminal.GOOD
    result = f"{plural(open_findings, 'check')} to look at" if open_findings else "ready to deploy"
    console.print(terminal.title(name, result, style=f"bold {style}"))
    for finding in findings:
        styles = {"passed": terminal.GOOD, "failed": terminal.BAD, "unknown": terminal.WARNING}
        mark = _MARKS[finding.status]
        console.print(f"  {mark} {finding.check}: {finding.summary}", style=styles[finding.status], markup=False)
        if finding.action:
            console.print(f"      {finding.action}", markup=False)
