"""Checks of the cluster's description and of the account: EKS, Lambda, KMS, IAM, and the template's limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cli.preflight.finding import Finding, failed, passed
from infra import assembly, function_sizes, installation
from infra.cluster import resource_names
from infra.cluster.kubernetes import cluster_manifests
from infra.options.stack_options import OptionError
from infra.template_limits import LimitError
from shared.api import labels
from shared.base.aws import error_code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from shared.base.aws import UntypedClient


AUTHENTICATION, TEMPLATE, CONCURRENCY = "authentication mode", "names and template", "concurrency quota"
EVENT_RULES, EVENT_BUSES = "event rules", "event buses"
EBS_KEY, SPOT_ROLE = "default EBS key", "spot role"
SPOT_ROLE_NAME = "AWSServiceRoleForEC2Spot"
_AWS_MANAGED_KEY = "alias/aws/ebs"
_UNRESERVED_MINIMUM = 100
"""Executions that Lambda keeps unreserved (AWS: "Configuring reserved concurrency")."""
_HIGHER_QUOTA = (
    "request a higher quota: aws service-quotas request-service-quota-increase --service-code lambda "
    "--quota-code L-B99A9384 --desired-value 1000"
)
_RULES_QUOTA = "Number of rules"
_DEFAULT_RULES, _RULES_IN_SMALL_REGIONS = 300, 100
_SMALL_REGIONS = frozenset({"af-south-1", "eu-south-1"})
"""Of a bus, where Service Quotas doesn't tell (docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html)."""
_BUSES_QUOTA, _DEFAULT_BUSES = "Event buses", 100
"""Of an account in a Region (the same page)."""
_GRANT_OPERATIONS = (
    "Encrypt Decrypt ReEncryptFrom ReEncryptTo GenerateDataKey GenerateDataKeyWithoutPlaintext DescribeKey CreateGrant"
)


def authentication_mode(description: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the cluster accepts access entries, by which functions and nodes authenticate."""
    mode = description.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
    if mode == "CONFIG_MAP":
        name = description["name"]
        yield failed(
            AUTHENTICATION,
            "CONFIG_MAP: the cluster has no access entries",
            f"aws eks update-cluster-config --name {name} --access-config authenticationMode=API_AND_CONFIG_MAP",
        )
    else:
        yield passed(AUTHENTICATION, str(mode))


def template(cluster: str, *, region: str, issuer: str, client: Callable[[str], Any]) -> Iterator[Finding]:
    """Whether the cluster's template holds AWS's limits, and no other cluster has its stack's name."""
    name = resource_names.stack(cluster)
    owner = _stack_cluster(client("cloudformation"), name)
    if owner not in {"", cluster}:
        yield failed(
            TEMPLATE,
            f'stack {name} belongs to cluster "{owner}"',
            f"delete it (aws cloudformation delete-stack --stack-name {name}; nodes stay), and deploy both clusters",
        )
        return
    try:
        _assembly(cluster, region=region, issuer=issuer)
    except (LimitError, OptionError) as error:
        yield failed(TEMPLATE, str(error), "report it with the cluster's name, or choose other options")
    except installation.MissingExtraError as error:
        yield Finding(check=TEMPLATE, status="unknown", summary="it can't be synthesised", action=str(error))
    except OSError as error:  # no Node.js, for example
        yield failed(TEMPLATE, f"it can't be synthesised: {error}", "install Node.js 20 or newer")
    else:
        yield passed(TEMPLATE, f"stack {name}, within the limits of SQS, IAM, Lambda and EventBridge")


def _assembly(cluster: str, *, region: str, issuer: str) -> Path:
    """The folder with the cluster's template, without options that this account doesn't need."""
    context = {
        "bundle": "source",
        "clusterSide": "printed",
        **({"relay": "pod", "oidcProvider": issuer} if issuer else {}),
    }
    return assembly.cached(cluster=cluster, root=installation.ROOT, context=context, region=region)


def event_rules(cluster: str, *, region: str, issuer: str, client: Callable[[str], Any]) -> Iterator[Finding]:
    """Whether the default event bus has room for the cluster's rules."""
    try:
        folder = _assembly(cluster, region=region, issuer=issuer)
    except (LimitError, OptionError, installation.MissingExtraError, OSError):
        yield Finding(check=EVENT_RULES, status="unknown", summary="the template can't be synthesised")
        return
    own = resource_names.rule_prefix(cluster)
    pages = client("events").get_paginator("list_rules").paginate()
    existing = sum(not str(rule["Name"]).startswith(own) for page in pages for rule in page["Rules"])
    most = _RULES_IN_SMALL_REGIONS if region in _SMALL_REGIONS else _DEFAULT_RULES
    needed, quota = _rules_on_the_default_bus(folder), _quota(client("service-quotas"), _RULES_QUOTA, most)
    if existing + needed > quota:
        yield failed(
            EVENT_RULES,
            f"the default event bus has {existing} other rules, the cluster's are {needed}, and {quota} are allowed",
            f'request a higher quota "{_RULES_QUOTA}" of EventBridge in Service Quotas, or make the clusters a fleet '
            "(docs/fleets.md)",
        )
    else:
        yield passed(EVENT_RULES, f"{needed} more next to {existing} others, of {quota}")


def event_buses(cluster: str, *, region: str, client: Callable[[str], Any]) -> Iterator[Finding]:
    """Whether the account may have the cluster's event bus."""
    own, events = cluster_manifests.bus_name(cluster), client("events")
    answer = events.list_event_buses()
    buses = answer["EventBuses"]
    while token := answer.get("NextToken"):
        answer = events.list_event_buses(NextToken=token)
        buses += answer["EventBuses"]
    taken = sum(bus["Name"] != own for bus in buses)
    quota = _quota(client("service-quotas"), _BUSES_QUOTA, _DEFAULT_BUSES)
    if taken + 1 > quota:
        yield failed(
            EVENT_BUSES,
            f"{taken} of the {quota} event buses of {region} are taken, and each cluster has one of its own",
            f'request a higher quota "{_BUSES_QUOTA}" of EventBridge in Service Quotas',
        )
    else:
        yield passed(EVENT_BUSES, f"{taken} of {quota} are taken")


def _rules_on_the_default_bus(folder: Path) -> int:
    templates = [json.loads(path.read_text()) for path in folder.glob("*.template.json")]
    resources = [resource for template in templates for resource in template["Resources"].values()]
    return sum(r["Type"] == "AWS::Events::Rule" and "EventBusName" not in r["Properties"] for r in resources)


def _quota(quotas: UntypedClient, name: str, default: int) -> int:
    """The quota of EventBridge, or what AWS's documentation says where Service Quotas doesn't tell."""
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="events")
    return next((int(q["Value"]) for page in pages for q in page["Quotas"] if q["QuotaName"] == name), default)


def _stack_cluster(cloudformation: UntypedClient, name: str) -> str:
    """The cluster of a stack, by its tag; "" if there is no such stack or tag."""
    try:
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if error_code(error) == "ValidationError":
            return ""
        raise
    return next((str(tag["Value"]) for tag in stack.get("Tags", ()) if tag["Key"] == labels.CLUSTER_NAME_TAG), "")


def concurrency(client: Callable[[str], Any], *, has_webhook: bool = False) -> Iterator[Finding]:
    """Whether the account's quota of concurrent executions is enough for all functions at once.

    The webhook function's are always reserved, so a deployment with it needs a larger quota.
    """
    limits = client("lambda").get_account_settings()["AccountLimit"]
    unreserved, total = int(limits["UnreservedConcurrentExecutions"]), int(limits["ConcurrentExecutions"])
    by_queues = sum(
        queue.concurrency or 1 for name, queue in function_sizes.QUEUES.items() if name in function_sizes.FUNCTIONS
    )
    # EventBridge invokes lifecycle and catalog, and disruption's sweep; the relay hands over while a check runs.
    needed = by_queues + 6
    reserved = sum(function_sizes.SIZES[name].reserved or 0 for name in function_sizes.FUNCTIONS)
    public = function_sizes.SIZES[function_sizes.WEBHOOK].reserved or 0 if has_webhook else 0
    if public and unreserved - public < _UNRESERVED_MINIMUM:
        yield failed(
            CONCURRENCY,
            f"{unreserved} of {total} concurrent executions are unreserved; the webhook function reserves {public}, "
            f"and Lambda keeps {_UNRESERVED_MINIMUM} unreserved",
            f"{_HIGHER_QUOTA}; or leave -c relay=webhook out",
        )
    elif unreserved < needed:
        yield failed(
            CONCURRENCY,
            f"{unreserved} of {total} concurrent executions are unreserved, and Tenon's functions use up to {needed}",
            _HIGHER_QUOTA,
        )
    else:
        possible = unreserved - public - reserved >= _UNRESERVED_MINIMUM
        option = "possible" if possible else f"impossible: Lambda keeps {_UNRESERVED_MINIMUM} unreserved"
        yield passed(CONCURRENCY, f"{unreserved} unreserved of {total}; -c reservedConcurrency=true is {option}")


def ebs_key(client: Callable[[str], Any], *, partition: str, account: str) -> Iterator[Finding]:
    """Whether instances can use the key that EBS encrypts volumes with by default."""
    ec2, kms = client("ec2"), client("kms")
    if not ec2.get_ebs_encryption_by_default()["EbsEncryptionByDefault"]:
        yield passed(EBS_KEY, "volumes aren't encrypted by default")
        return
    key = str(ec2.get_ebs_default_kms_key_id()["KmsKeyId"])
    if key.endswith(_AWS_MANAGED_KEY):
        yield passed(EBS_KEY, f"{_AWS_MANAGED_KEY}, AWS's own")
        return
    metadata = kms.describe_key(KeyId=key)["KeyMetadata"]
    if metadata.get("KeyManager") == "AWS":
        yield passed(EBS_KEY, f"{key}, AWS's own")
        return
    if metadata["KeyState"] != "Enabled":
        yield failed(
            EBS_KEY,
            f"{key} is {metadata['KeyState']}, so machines with encrypted volumes die at boot",
            f"aws kms enable-key --key-id {key}, or choose another default key",
        )
        return
    role = f"arn:{partition}:iam::{account}:role/aws-service-role/spot.amazonaws.com/{SPOT_ROLE_NAME}"
    if _is_granted(kms, key, role):
        yield passed(EBS_KEY, f"{key}, which {SPOT_ROLE_NAME} may use: deploy with -c kmsKeys={metadata['Arn']}")
    else:
        yield failed(
            EBS_KEY,
            f"{key} has no grant for {SPOT_ROLE_NAME}, so spot instances with encrypted volumes may die at boot",
            f"aws kms create-grant --key-id {key} --grantee-principal {role} --operations {_GRANT_OPERATIONS}; then "
            f"deploy with -c kmsKeys={metadata['Arn']}",
        )


def _is_granted(kms: UntypedClient, key: str, role: str) -> bool:
    pages = kms.get_paginator("list_grants").paginate(KeyId=key)
    if any(grant["GranteePrincipal"] == role for page in pages for grant in page["Grants"]):
        return True
    return role in str(kms.get_key_policy(KeyId=key, PolicyName="default")["Policy"])


def spot_role(client: Callable[[str], Any]) -> Iterator[Finding]:
    """Whether the account has EC2's service-linked role for spot instances."""
    try:
        client("iam").get_role(RoleName=SPOT_ROLE_NAME)
    except ClientError as error:
        if error_code(error) != "NoSuchEntity":
            raise
        yield failed(
            SPOT_ROLE,
            f"the account has no {SPOT_ROLE_NAME}: its first spot launch creates it, and fails until IAM knows it",
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
        )
    else:
        yield passed(SPOT_ROLE, SPOT_ROLE_NAME)
