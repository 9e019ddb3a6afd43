"""The step of a spot interruption: by AWS FIS if a role for it is given, else by invoking the function with a warning.

EventBridge takes no events of ``aws.`` sources by PutEvents (EventBridge API reference, PutEventsRequestEntry), and the
queue takes messages of the stack's rules only. So without FIS the interruption function is invoked with the batch that
its queue would deliver; that the rule matches such an event, and may send to the queue, is what the step "wiring"
tests. EC2 doesn't confirm such a warning, so the drain has no deadline.
"""

from __future__ import annotations

import json
import uuid
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any

from cli.verify import nodes, objects, reasons
from cli.verify.result import Proof, StepFailedError
from infra import function_sizes
from infra.cluster import resource_names
from shared.api import labels
from shared.cluster import resources

if TYPE_CHECKING:
    from cli.verify.nodes import NodeOfPod
    from cli.verify.verification import Verification

_POD = "interrupted"
_NOTICED_LIMIT = timedelta(minutes=2)
_REDELIVERED_AFTER = timedelta(seconds=20)
"""As the queue delivers a message again that isn't done yet."""
_BY_FIS = "AWS FIS interrupted the instance,"
_BY_WARNING = "Without --fis-role, the function was invoked with a spot warning,"
SPOT_WARNING = "EC2 Spot Instance Interruption Warning"


def verify(run: Verification) -> Proof:
    """The node of an interrupted spot instance is drained at once, and goes."""
    try:
        (node,) = nodes.bring_up(run, _POD, capacity_type=labels.SPOT)
        sent = run.now()
        by = _BY_FIS if run.settings.fis_role else _BY_WARNING
        warnings = None if run.settings.fis_role else _Warnings(run, node)
        if warnings is None:
            _interrupt(run, node.instance)
        if not run.wait(lambda: _is_noticed(run, node, warnings), limit=_NOTICED_LIMIT):
            raise StepFailedError(
                "The interruption function didn't begin to drain the node within 2 minutes after the warning"
                f"{reasons.because(run, node.node)}."
            )
        noticed = run.seconds_since(sent)
        nodes.delete_pods(run, _POD)
        remaining = [node.claim, *(c["metadata"]["name"] for c in run.claims())]
        gone = nodes.wait_until_gone(run, remaining, failure="The interrupted node, or its replacement, didn't go")
    finally:
        nodes.delete_pods(run, _POD)
        for id_ in experiment_templates(run) if run.settings.fis_role else ():
            run.aws("fis").delete_experiment_template(id=id_)
    return Proof(
        sentence=f"{by} and its node was being drained {noticed:.0f} s later.",
        measured={**node.measured, "drain begun after the warning": noticed, "gone after the warning": gone},
    )


def spot_warning(run: Verification, instance: str) -> dict[str, Any]:
    """The event that EventBridge delivers two minutes before EC2 interrupts a spot instance."""
    account = str(run.description["arn"]).split(":")[4]
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": SPOT_WARNING,
        "source": "aws.ec2",
        "account": account,
        "time": run.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": run.region,
        "resources": [f"arn:aws:ec2:{run.region}:{account}:instance/{instance}"],
        "detail": {"instance-id": instance, "instance-action": "terminate"},
    }


def experiment_templates(run: Verification) -> list[str]:
    """The experiment templates of FIS that runs of this cluster have made.

    Raises:
        BotoCoreError, ClientError: FIS can't be called, or denies it.
    """
    pages = run.aws("fis").get_paginator("list_experiment_templates").paginate()
    templates = [template for page in pages for template in page["experimentTemplates"]]
    return [
        str(t["id"])
        for t in templates
        if objects.TAG in t.get("tags", {}) and t["tags"].get(labels.CLUSTER_NAME_TAG) == run.cluster
    ]


def _is_noticed(run: Verification, node: NodeOfPod, warnings: _Warnings | None) -> bool:
    if _is_deleting(run, node.claim):
        return True
    if warnings is not None:
        warnings.deliver()
    return False


class _Warnings:
    """Invokes the interruption function with the warning, and again as its queue would."""

    def __init__(self, run: Verification, node: NodeOfPod) -> None:
        self._run = run
        self._event = spot_warning(run, node.instance)
        self._received = 0
        self._due = run.now()

    def deliver(self) -> None:
        """Invoke it if a delivery is due."""
        run = self._run
        if run.now() < self._due:
            return
        self._due = run.now() + _REDELIVERED_AFTER
        self._received += 1
        queue = resource_names.queue(run.cluster, function_sizes.INTERRUPTION, fifo=False)
        record = {
            "messageId": self._event["id"],
            "receiptHandle": f"{run.name}-{self._received}",
            "body": json.dumps(self._event),
            "attributes": {"ApproximateReceiveCount": str(self._received)},
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": f"arn:aws:sqs:{run.region}:{self._event['account']}:{queue}",
            "awsRegion": run.region,
        }
        run.aws("lambda").invoke(
            FunctionName=resource_names.function(run.cluster, function_sizes.INTERRUPTION),
            InvocationType="Event",
            Payload=json.dumps({"Records": [record]}),
        )


def _interrupt(run: Verification, instance: str) -> None:
    """Let AWS FIS interrupt the instance."""
    (arn,) = spot_warning(run, instance)["resources"]
    partition = str(run.description["arn"]).split(":")[1]
    template = run.aws("fis").create_experiment_template(
        clientToken=f"{run.name}-template",
        description=f"tenon verify {run.id}",
        roleArn=run.settings.fis_role,
        stopConditions=[{"source": "none"}],
        targets={
            "node": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceArns": [arn.replace("arn:aws:", f"arn:{partition}:", 1)],
                "selectionMode": "ALL",
            }
        },
        actions={
            "interrupt": {
                "actionId": "aws:ec2:send-spot-instance-interruptions",
                "parameters": {"durationBeforeInterruption": "PT2M"},
                "targets": {"SpotInstances": "node"},
            }
        },
        tags={objects.TAG: run.id, labels.CLUSTER_NAME_TAG: run.cluster},
    )["experimentTemplate"]
    run.aws("fis").start_experiment(clientToken=f"{run.name}-experiment", experimentTemplateId=template["id"])


def _is_deleting(run: Verification, name: str) -> bool:
    claim = run.get(resources.NODE_CLAIMS, name)
    return claim is None or "deletionTimestamp" in claim["metadata"]
