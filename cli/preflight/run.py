"""Runs ``tenon preflight``: what would keep Tenon from working for a cluster, before it is deployed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from botocore.exceptions import ClientError

from cli import json_output, terminal
from cli.cluster import kubeconfig_context, live_reader
from cli.errors import UsageError
from cli.preflight import account_checks, cluster_checks, ipv6_check, network_checks
from cli.preflight import finding as checking
from cli.preflight.finding import Finding
from cli.printable import echo
from shared.base.aws import error_code
from shared.base.plurals import plural
from shared.cluster.errors import ApiError
from shared.cluster.kubeconfig import KubeconfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cli.cluster.cluster_reference import ClusterReference
    from cli.preflight.finding import Check
    from shared.base.aws import UntypedClient

_MARKS = {"passed": "✓", "failed": "✗", "unknown": "?"}


def findings(reference: ClusterReference, subnets: Sequence[str], *, relay: str) -> list[Finding]:
    """The results of all checks of the cluster and its account."""
    reference = kubeconfig_context.resolve(reference)
    with live_reader.read_only_aws(reference):
        return list(_findings(reference, subnets, relay=relay))


def show(name: str, findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print the results."""
    if as_json:
        echo(json_output.text("preflight", findings))
    else:
        _show(name, findings)


def _findings(reference: ClusterReference, subnets: Sequence[str], *, relay: str) -> Iterator[Finding]:
    create: Callable[..., Any] = boto3.client
    description = _describe(create("eks"), reference.cluster)
    _, partition, _, region, account, _ = str(description["arn"]).split(":", 5)

    def client(service: str) -> UntypedClient:
        return create(service, region_name=region)

    yield from checking.run(
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
    name = str(description["name"])
    needs_issuer = relay == "pod" and partition == "aws-cn"
    issuer = str(description.get("identity", {}).get("oidc", {}).get("issuer", "")) if needs_issuer else ""
    return [
        (account_checks.AUTHENTICATION, lambda: account_checks.authentication_mode(description)),
        (account_checks.TEMPLATE, lambda: account_checks.template(name, region=region, issuer=issuer, client=client)),
        (
            account_checks.EVENT_RULES,
            lambda: account_checks.event_rules(name, region=region, issuer=issuer, client=client),
        ),
        (account_checks.EVENT_BUSES, lambda: account_checks.event_buses(name, region=region, client=client)),
        (account_checks.CONCURRENCY, lambda: account_checks.concurrency(client, has_webhook=relay == "webhook")),
        (account_checks.EBS_KEY, lambda: account_checks.ebs_key(client, partition=partition, account=account)),
        (account_checks.SPOT_ROLE, lambda: account_checks.spot_role(client)),
    ]


def _cluster_checks(
    client: Callable[[str], Any],
    description: Mapping[str, Any],
    reference: ClusterReference,
    *,
    region: str,
    relay_pod: bool,
) -> list[tuple[str, Check]]:
    names = [cluster_checks.AUTOSCALERS, cluster_checks.DEFINITIONS]
    if relay_pod:
        names = [cluster_checks.RELAY_IDENTITY, *names, cluster_checks.RELAY_NODES]
    if ipv6_check.is_ipv6(description):
        names = [*names, ipv6_check.CNI_ROLE]
    try:
        objects = cluster_checks.read(live_reader.connect(reference))
    except (ApiError, KubeconfigError) as error:
        reason = str(error)
        return [(name, lambda name=name: [_unknown(name, reason)]) for name in names]  # type: ignore[misc]  # its default
    by_name: dict[str, Check] = {
        cluster_checks.RELAY_IDENTITY: lambda: cluster_checks.relay_identity(
            objects, description, region=region, client=client
        ),
        cluster_checks.AUTOSCALERS: lambda: cluster_checks.other_autoscalers(objects, description),
        cluster_checks.DEFINITIONS: lambda: cluster_checks.definitions(objects, description),
        cluster_checks.RELAY_NODES: lambda: cluster_checks.relay_nodes(objects),
        ipv6_check.CNI_ROLE: lambda: ipv6_check.cni_role(objects.cni_role, description, client=client),
    }
    return [(name, by_name[name]) for name in names]


def _unknown(name: str, reason: str) -> Finding:
    return Finding(check=name, status="unknown", summary=f"the cluster can't be read: {reason}")


def _network_checks(
    client: Callable[[str], Any], description: Mapping[str, Any], subnets: Sequence[str]
) -> list[tuple[str, Check]]:
    of_cluster = list(description.get("resourcesVpcConfig", {}).get("subnetIds", ()))
    return [
        (network_checks.SUBNETS, lambda: network_checks.free_addresses(client, of_cluster)),
        (network_checks.REACHABILITY, lambda: network_checks.reachability(client, description, subnets=subnets)),
    ]


def _show(name: str, findings: Sequence[Finding]) -> None:
    console = terminal.console()
    open_findings = sum(finding.status != "passed" for finding in findings)
    style = terminal.BAD if open_findings else terminal.GOOD
    result = f"{plural(open_findings, 'check')} to look at" if open_findings else "ready to deploy"
    console.print(terminal.title(name, result, style=f"bold {style}"))
    for finding in findings:
        styles = {"passed": terminal.GOOD, "failed": terminal.BAD, "unknown": terminal.WARNING}
        mark = _MARKS[finding.status]
        console.print(f"  {mark} {finding.check}: {finding.summary}", style=styles[finding.status])
        if finding.action:
            console.print(f"      {finding.action}")
