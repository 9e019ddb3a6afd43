"""`tenon preflight` before a deployment: a cluster that is ready, and what is found in clusters that aren't."""

from __future__ import annotations

import contextlib
import json
import os
import re
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from local.aws import backends
from local.kubernetes import kinds
from local.world import World
from shared.base import runtime
from tests.e2e.cli.conftest import CLUSTER
from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = pytest.mark.flow

ISSUER = "oidc.eks.us-east-1.amazonaws.com/id/0123456789ABCDEF"
SPOT_ROLE = "AWSServiceRoleForEC2Spot"
SPOT_ROLE_ARN = f"arn:aws:iam::123456789012:role/aws-service-role/spot.amazonaws.com/{SPOT_ROLE}"


def workload(kind: str, name: str) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": f"example/{name}:1"}]}}
    spec: dict[str, Any] = {"selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": "kube-system", "labels": labels}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def node(**spec: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "eks.amazonaws.com/nodegroup": "system"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "system", "labels": labels}, "spec": spec}


AGENT = workload("DaemonSet", "eks-pod-identity-agent")
NO_TAINTS = node(taints=[])


class Account:
    """A world whose cluster is ready for Tenon, and ways to break it for a while."""

    def __init__(self, world: World, kubeconfig: Path) -> None:
        self.world = world
        self.kubeconfig = kubeconfig
        self.kubeconfig.write_text(world.kubectl_config())
        self.cluster = backends.eks("us-east-1").clusters[CLUSTER]
        self.cluster.identity = {"oidc": {"issuer": f"https://{ISSUER}"}}
        self.ec2 = backends.ec2("us-east-1")
        self.subnets = list(world.aws.account.subnets.values())
        boto3.client("iam").create_role(
            RoleName=SPOT_ROLE, Path="/aws-service-role/spot.amazonaws.com/", AssumeRolePolicyDocument="{}"
        )
        world.apply([AGENT, NO_TAINTS])

    def preflight(self, *arguments: str, name: str = CLUSTER) -> CommandResult:
        in_shell = runtime.Runtime(environ=os.environ, now=self.world.clock.now, sleep=self.world.clock.sleep)
        with runtime.using(in_shell):
            return call("preflight", name, "--relay", "pod", *arguments, env={"KUBECONFIG": str(self.kubeconfig)})

    def findings(self, *arguments: str) -> list[dict[str, str]]:
        """What isn't passed."""
        result = self.preflight("--json", *arguments)
        assert result.code in {0, 1}, result.err
        return [finding for finding in json.loads(result.out) if finding["status"] != "passed"]

    def _delete(self, obj: dict[str, Any]) -> None:
        store, metadata = self.world.store, obj["metadata"]
        kind = store.kind(obj["apiVersion"], obj["kind"])
        store.delete(kind, metadata["name"], namespace=metadata.get("namespace", ""))

    @contextlib.contextmanager
    def with_object(self, obj: dict[str, Any]) -> Iterator[None]:
        """While entered, the object exists."""
        self.world.apply(obj)
        try:
            yield
        finally:
            self._delete(obj)

    @contextlib.contextmanager
    def without_object(self, obj: dict[str, Any]) -> Iterator[None]:
        """While entered, the object doesn't exist."""
        self._delete(obj)
        try:
            yield
        finally:
            self.world.apply(obj)

    @contextlib.contextmanager
    def with_foreign_definition(self) -> Iterator[None]:
        """While entered, EKS manages the definition of NodePools."""
        label = "app.kubernetes.io/managed-by"
        crd, store = kinds.CUSTOM_RESOURCE_DEFINITIONS, self.world.store
        store.patch(crd, "nodepools.karpenter.sh", {"metadata": {"labels": {label: "eks"}}})
        try:
            yield
        finally:
            store.patch(crd, "nodepools.karpenter.sh", {"metadata": {"labels": {label: None}}})

    @contextlib.contextmanager
    def with_tainted_node(self) -> Iterator[None]:
        """While entered, the only node is tainted."""
        self.world.apply(node(taints=[{"key": "dedicated", "value": "system", "effect": "NoSchedule"}]))
        try:
            yield
        finally:
            self.world.apply(NO_TAINTS)

    @contextlib.contextmanager
    def with_default_key(self, state: str = "Enabled", *, granted: bool = False) -> Iterator[None]:
        """While entered, EBS encrypts by default with a customer managed key."""
        kms, ec2 = boto3.client("kms"), boto3.client("ec2")
        key = kms.create_key()["KeyMetadata"]
        if granted:
            kms.create_grant(KeyId=key["KeyId"], GranteePrincipal=SPOT_ROLE_ARN, Operations=["Decrypt", "CreateGrant"])
        if state == "Disabled":
            kms.disable_key(KeyId=key["KeyId"])
        ec2.enable_ebs_encryption_by_default()
        try:
            with backends.replaced(self.world.aws.settings, "ebs_default_kms_key", key["Arn"]):
                yield
        finally:
            ec2.disable_ebs_encryption_by_default()

    @contextlib.contextmanager
    def with_rules_of_others(self, number: int) -> Iterator[None]:
        """While entered, the account has that many rules of other products on its default event bus."""
        events = boto3.client("events")
        names = [f"other-{i}" for i in range(number)]
        for name in names:
            events.put_rule(Name=name, ScheduleExpression="rate(1 day)")
        try:
            with backends.replaced(self.world.aws.settings, "event_rules", 10):
                yield
        finally:
            for name in names:
                events.delete_rule(Name=name)

    @contextlib.contextmanager
    def without_spot_role(self) -> Iterator[None]:
        """While entered, the account has never launched a spot instance."""
        roles = backends.iam().roles
        (role_id,) = (id_ for id_, role in roles.items() if role.name == SPOT_ROLE)
        role = roles.pop(role_id)
        try:
            yield
        finally:
            roles[role_id] = role

    def with_vpc_config(self, **fields: object) -> AbstractContextManager[None]:
        """While entered, the cluster's endpoint has this configuration."""
        config = {**self.cluster.resources_vpc_config, **fields}
        return backends.replaced(self.cluster, "resources_vpc_config", config)


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    with World(cluster=CLUSTER) as world:
        yield Account(world, tmp_path_factory.mktemp("preflight") / "kubeconfig")


def test_a_cluster_that_is_ready_has_a_check_mark_for_every_check(account: Account) -> None:
    shown = account.preflight()
    assert shown.code == 0, shown.out
    assert shown.lines[0] == f"{CLUSTER} · ready to deploy"
    assert len(shown.lines) == 14
    assert all(line.startswith("  ✓ ") for line in shown.lines[1:])


STATES: dict[str, tuple[Callable[[Account], AbstractContextManager[None]], tuple[str, ...], str, str, str]] = {
    "config-map": (
        lambda a: backends.replaced(a.cluster, "access_config", {"authenticationMode": "CONFIG_MAP"}),
        (),
        "authentication mode",
        "no access entries",
        "authenticationMode=API_AND_CONFIG_MAP",
    ),
    "no-identity": (
        lambda a: a.without_object(AGENT),
        (),
        "relay's role",
        "no EKS Pod Identity agent",
        f"-c oidcProvider={ISSUER}",
    ),
    "definitions": (
        lambda a: a.with_foreign_definition(),
        (),
        "definitions of kinds",
        "CustomResourceDefinition nodepools.karpenter.sh belongs to eks, not to Tenon or Karpenter",
        "deploy with -c kinds=kept",
    ),
    "karpenter": (
        lambda a: a.with_object(workload("Deployment", "karpenter")),
        (),
        "other autoscalers",
        "Karpenter (Deployment kube-system/karpenter)",
        "kubectl -n kube-system scale deployment karpenter --replicas=0",
    ),
    "cluster-autoscaler": (
        lambda a: a.with_object(workload("Deployment", "cluster-autoscaler")),
        (),
        "other autoscalers",
        "Cluster Autoscaler (Deployment kube-system/cluster-autoscaler)",
        "scale deployment cluster-autoscaler --replicas=0",
    ),
    "auto-mode": (
        lambda a: backends.replaced(a.cluster, "compute_config", {"enabled": True}),
        (),
        "other autoscalers",
        "EKS Auto Mode also launches nodes",
        "docs/migration.md",
    ),
    "tainted": (
        lambda a: a.with_tainted_node(),
        (),
        "relay's nodes",
        "tainted: dedicated=system:NoSchedule",
        "-c relayTolerations=dedicated=system:NoSchedule",
    ),
    "no-nodes": (
        lambda a: a.without_object(NO_TAINTS),
        (),
        "relay's nodes",
        "no Linux node besides those of NodePools",
        "managed node group",
    ),
    "small-quota": (
        lambda a: backends.replaced(a.world.aws.settings, "concurrent_executions", 10),
        (),
        "concurrency quota",
        "10 of 10 concurrent executions are unreserved",
        "L-B99A9384",
    ),
    "no-room-for-rules": (
        lambda a: a.with_rules_of_others(2),
        (),
        "event rules",
        "has 2 other rules, the cluster's are 9, and 10 are allowed",
        'quota "Number of rules" of EventBridge',
    ),
    "no-room-for-a-bus": (
        lambda a: backends.replaced(a.world.aws.settings, "event_buses", 1),
        (),
        "event buses",
        "1 of the 1 event buses of us-east-1 are taken, and each cluster has one of its own",
        'quota "Event buses" of EventBridge',
    ),
    "quota-of-the-webhook": (
        lambda a: backends.replaced(a.world.aws.settings, "concurrent_executions", 104),
        ("--relay", "webhook"),
        "concurrency quota",
        "the webhook function reserves 5",
        "leave -c relay=webhook out",
    ),
    "full-subnet": (
        lambda a: backends.replaced(a.ec2.get_subnet(a.subnets[1]), "_available_ip_addresses", 3),
        (),
        "free addresses",
        "us-east-1b: 3",
        "spec.subnetSelectorTerms",
    ),
    "key-without-grant": (
        lambda a: a.with_default_key(),
        (),
        "default EBS key",
        f"has no grant for {SPOT_ROLE}",
        "aws kms create-grant",
    ),
    "disabled-key": (
        lambda a: a.with_default_key("Disabled", granted=True),
        (),
        "default EBS key",
        "is Disabled",
        "aws kms enable-key",
    ),
    "private-endpoint": (
        lambda a: a.with_vpc_config(endpointPublicAccess=False),
        (),
        "functions' network",
        "endpoint is private",
        "-c subnets=subnet-",
    ),
    "restricted-endpoint": (
        lambda a: a.with_vpc_config(publicAccessCidrs=["192.0.2.0/24"]),
        (),
        "functions' network",
        "only accepts 192.0.2.0/24",
        "-c subnets=subnet-",
    ),
    "isolated-subnets": (
        lambda a: a.with_vpc_config(endpointPublicAccess=False),
        ("--subnets", "SUBNETS"),
        "functions' network",
        "no endpoint for dynamodb, ec2, eks, events, s3, sqs, ssm",
        "NAT gateway",
    ),
    "no-spot-role": (
        lambda a: a.without_spot_role(),
        (),
        "spot role",
        "its first spot launch creates it",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
}
"""Broken states: how a state is entered, the command's arguments, the check that finds it, its summary and action."""


@pytest.mark.parametrize("state", STATES)
def test_a_broken_state_is_the_only_finding_and_says_what_to_do(account: Account, state: str) -> None:
    enter, arguments, check, summary, action = STATES[state]
    with enter(account):
        (finding,) = account.findings(*(a.replace("SUBNETS", account.subnets[0]) for a in arguments))
    assert (finding["check"], finding["status"]) == (check, "failed")
    assert summary in finding["summary"]
    assert action in finding["action"]
    assert account.findings() == []


def test_a_granted_key_irsa_and_endpoints_pass(account: Account) -> None:
    boto3.client("iam").create_open_id_connect_provider(Url=f"https://{ISSUER}", ThumbprintList=["0" * 40])
    ec2 = boto3.client("ec2")
    for service in ("dynamodb", "ec2", "eks", "events", "s3", "sqs", "ssm"):
        name = f"com.amazonaws.us-east-1.{service}"
        ec2.create_vpc_endpoint(VpcId=account.world.aws.account.vpc_id, ServiceName=name, VpcEndpointType="Interface")
    with (
        account.with_default_key(granted=True),
        account.without_object(AGENT),
        account.with_vpc_config(endpointPublicAccess=False),
    ):
        assert account.findings("--subnets", account.subnets[0]) == []


def test_what_cannot_be_read_is_unknown_and_the_other_checks_still_run(account: Account) -> None:
    server = account.kubeconfig.read_text()
    account.kubeconfig.write_text(re.sub(r"https://127\.0\.0\.1:\d+", "https://127.0.0.1:1", server))
    try:
        shown = account.preflight()
    finally:
        account.kubeconfig.write_text(server)
    assert shown.code == 1
    unknown = [line for line in shown.lines if line.startswith("  ? ")]
    assert [line.split(":")[0].removeprefix("  ? ") for line in unknown] == [
        "relay's role",
        "other autoscalers",
        "definitions of kinds",
        "relay's nodes",
    ]
    assert sum(line.startswith("  ✓ ") for line in shown.lines) == 9


def test_preflight_changes_nothing(account: Account) -> None:
    called: list[str] = []
    changed: list[str] = []
    account.world.aws.calls.observe(lambda one_call: called.append(one_call.operation))
    stop = account.world.store.subscribe(lambda change: changed.append(change.type))
    account.preflight()
    stop()
    assert len(called) >= 6
    assert [operation for operation in called if not operation.startswith(("Describe", "Get", "List"))] == []
    assert changed == []


def test_a_cluster_that_does_not_exist_is_a_usage_error(account: Account) -> None:
    result = account.preflight(name="nowhere")
    assert result.code == 2
    assert result.err == 'tenon preflight: no EKS cluster is named "nowhere" in this account and Region\n'
