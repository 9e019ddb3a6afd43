"""`tenon status` of a healthy deployment, and of others."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import boto3
import pytest

from cli.status import interruption_feed
from infra import function_sizes
from infra.cluster import resource_names
from local.faults import Fault
from local.world import sample_objects
from tests.e2e.cli.conftest import CLUSTER, Shell
from tests.e2e.world_state import events

if TYPE_CHECKING:
    from pathlib import Path

    from local.world import World

MANIFEST = "cli/demo/manifests/spot-default.yaml"


@pytest.mark.flow
def test_a_healthy_deployment_exits_with_0(shell: Shell) -> None:
    shell.world.apply(MANIFEST)
    shell.world.run_until_idle()
    shown = shell.tenon("status")
    assert shown.code == 0, shown.out + shown.err
    assert shown.lines[0] == f"{CLUSTER} · healthy"
    functions = set(function_sizes.FUNCTIONS) - {function_sizes.RELAY}  # which is a pod here
    for name in (*functions, "provisioning", "undelivered"):
        assert any(line.split()[:1] == [name] for line in shown.lines), name


def interruption_queue(shell: Shell) -> tuple[list[str], list[str]]:
    """The feed's problems in JSON, and the lines that the table has."""
    problems = shell.tenon("status", "--json").json["interruption_feed"]["problems"]
    shown = shell.tenon("status")
    assert shown.code == (1 if problems else 0), shown.out
    return problems, [line for line in shown.lines if line.startswith("  interruption queue: ")]


def test_the_interruption_queue_is_fed_and_the_last_event_is_shown(shell: Shell) -> None:
    problems, lines = interruption_queue(shell)
    assert problems == []
    assert lines == ["  interruption queue: every rule of AWS's events sends to it; no event in 14 days"]
    hour = shell.world.clock.now() - timedelta(hours=3)
    boto3.client("cloudwatch").put_metric_data(
        Namespace="AWS/Events",
        MetricData=[
            {
                "MetricName": "TriggeredRules",
                "Dimensions": [{"Name": "RuleName", "Value": resource_names.rule(CLUSTER, "SpotInterruption")}],
                "Timestamp": hour,
                "Value": 2,
            }
        ],
    )
    _, (line,) = interruption_queue(shell)
    assert re.search(r"last event (2h\d+m|3h\d*m?|4h) ago$", line), line


def test_an_interruption_queue_that_is_not_fed_says_what_is_wrong(shell: Shell) -> None:
    events, sqs = boto3.client("events"), boto3.client("sqs")
    rules = {id_: resource_names.rule(CLUSTER, id_) for id_ in interruption_feed.RULES}
    events.disable_rule(Name=rules["Rebalance"])
    for id_ in ("Health", "StateChange"):
        targets = events.list_targets_by_rule(Rule=rules[id_])["Targets"]
        events.remove_targets(Rule=rules[id_], Ids=[target["Id"] for target in targets])
    events.delete_rule(Name=rules["Health"])
    problems, lines = interruption_queue(shell)
    assert problems == [
        f"rule {rules['Rebalance']} is disabled",
        f"rule {rules['StateChange']} doesn't target the queue",
        f"rule {rules['Health']} doesn't exist",
    ]
    assert lines == [f"  interruption queue: {problem}" for problem in problems]
    url = sqs.get_queue_url(QueueName=resource_names.queue(CLUSTER, "interruption", fifo=False))["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    problems, _ = interruption_queue(shell)
    assert f"the queue's policy doesn't allow rule {rules['SpotInterruption']}" in problems


def test_a_dead_letter_is_shown_and_exits_with_1(shell: Shell) -> None:
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=resource_names.queue(CLUSTER, "termination", fifo=False))["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="garbage")
    shell.world.run_until_idle()
    result = shell.tenon("status", "--json")
    assert result.code == 1
    (queue,) = (q for q in result.json["queues"] if q["name"] == "termination")
    assert (queue["waiting"], queue["dead"]) == (0, 1)
    assert result.json["well"] is False


def test_a_cluster_that_cannot_be_read_is_noted_and_exits_with_1(shell: Shell) -> None:
    shell.world.faults.inject_kubernetes("GET", "/pods", Fault(code="Forbidden", status=403), times=1000)
    shown = shell.tenon("status")
    assert shown.code == 1
    assert any("the cluster can't be read" in line for line in shown.lines), shown.out


def test_an_active_alarm_is_shown_with_its_runbook(shell: Shell) -> None:
    name = resource_names.name(CLUSTER, "pods-waiting", longest=255)
    cloudwatch = boto3.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName=name,
        AlarmDescription="A pod waits. What to do: docs/runbooks.md#pods-waiting",
        Namespace="Tenon",
        MetricName="tenon_pods_pending_oldest_seconds",
        Period=60,
        EvaluationPeriods=1,
        Threshold=300,
        ComparisonOperator="GreaterThanThreshold",
        Statistic="Maximum",
    )
    cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="test")
    shown = shell.tenon("status")
    assert shown.code == 1
    assert any("pods-waiting" in line and "docs/runbooks.md#pods-waiting" in line for line in shown.lines)


def test_the_conditions_of_an_unready_node_class_are_shown(shell: Shell, tmp_path: Path) -> None:
    manifest = tmp_path / "class.yaml"
    manifest.write_text(
        """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: nowhere}
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {absent: such}}]
  securityGroupSelectorTerms: [{tags: {absent: such}}]
"""
    )
    shell.world.apply(str(manifest))
    shell.world.run_until_idle()
    result = shell.tenon("status", "--json")
    assert result.code == 1
    wrong = {u["condition"]: u for u in result.json["unready"] if u["name"] == "nowhere"}
    assert "SubnetsReady" in wrong
    assert "SecurityGroupsReady" in wrong


def test_a_missing_function_is_shown_in_its_place(shell: Shell) -> None:
    boto3.client("lambda").delete_function(FunctionName=resource_names.function(CLUSTER, "catalog"))
    shown = shell.tenon("status")
    assert shown.code == 1
    assert any(line.split()[:1] == ["catalog"] and "not deployed" in line for line in shown.lines)


def test_launches_that_ec2_refuses_are_shown_before_they_time_out(shell: Shell) -> None:
    world = shell.world
    denied = Fault(code="UnauthorizedOperation", message="no")
    world.faults.inject_aws("ec2", "CreateFleet", denied, times=1000)
    world.apply(MANIFEST)
    world.scale("default", "inflate", 2)
    world.run_for(timedelta(minutes=1))
    shown = shell.tenon("status", "--json")
    assert shown.code == 1
    (refused,) = (u for u in shown.json["unready"] if u["kind"] == "NodeClaim")
    assert refused["condition"] == "Launched"
    assert "EC2 denied the launch" in refused["message"]


def test_a_nodepool_whose_instance_types_dont_exist_is_not_ready_and_says_why(shell: Shell) -> None:
    world = shell.world
    requirements = {"node.kubernetes.io/instance-type": ["m5.gigantic", "c9x.large"]}
    world.apply([sample_objects.node_class(world), sample_objects.node_pool(requirements)])
    world.run_for(timedelta(minutes=1))
    why = "no instance type of us-east-1 meets .*/instance-type In m5.gigantic, c9x.large"
    (event,) = events(world, "NoCompatibleInstanceTypes", kind="NodePool")
    assert re.search(why, event["message"])
    shown = shell.tenon("status", "--json")
    assert shown.code == 1
    (unready,) = shown.json["unready"]
    assert (unready["kind"], unready["condition"]) == ("NodePool", "InstanceTypesFound")
    assert re.search(why, unready["message"])
    assert ready_of(world) == "False"

    world.apply([sample_objects.node_pool({"node.kubernetes.io/instance-type": ["m5.large"]})])
    world.run_for(timedelta(minutes=1))
    assert ready_of(world) == "True"
    assert shell.tenon("status").code == 0


def ready_of(world: World) -> str:
    """The status of the NodePool's condition Ready."""
    node_pool = world.store.get(world.store.kind("karpenter.sh/v1", "NodePool"), "default")
    (status,) = (c["status"] for c in node_pool["status"]["conditions"] if c["type"] == "Ready")
    return str(status)
