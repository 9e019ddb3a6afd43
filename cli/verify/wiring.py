"""The step "wiring": every part of the deployment is there, enabled, connected to the next, and alive."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cli.status.interruption_feed import allows
from cli.verify import functions, leases, rules
from cli.verify.result import Proof, StepFailedError
from infra import function_sizes
from infra.cluster import resource_names
from infra.cluster.kubernetes import cluster_manifests
from shared.base.aws import error_code
from shared.base.plurals import plural
from shared.base.struct import Struct
from shared.cluster.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cli.verify.verification import Verification

_QUEUES = {
    function_sizes.PROVISIONER: "provisioning",
    function_sizes.INTERRUPTION: "interruption",
    function_sizes.TERMINATION: "termination",
    function_sizes.DISRUPTION: "disruption",
    function_sizes.BUFFERS: "buffers",
    function_sizes.NODE_GROUPS: "nodegroups",
}
"""The purpose in a queue's name, by the function that it triggers."""
_MAX_PROBLEMS = 5
_DEFINITIONS = Resource(
    group="apiextensions.k8s.io", plural="customresourcedefinitions", kind="CustomResourceDefinition"
)
_BINDINGS = Resource(group="rbac.authorization.k8s.io", plural="clusterrolebindings", kind="ClusterRoleBinding")
_ROLES = Resource(group="rbac.authorization.k8s.io", plural="clusterroles", kind="ClusterRole")


class _Queue(Struct, kw_only=True):
    """A queue as SQS describes it; None where there is none."""

    purpose: str
    arn: str
    attributes: Mapping[str, str]


class _Deployment(Struct, kw_only=True):
    functions: Mapping[str, Mapping[str, Any]]
    queues: Mapping[str, _Queue | None]

    @property
    def targets(self) -> dict[str, str]:
        """The function that a target of a rule invokes, by the target's ARN."""
        queues = {queue.arn: function for function, queue in self.queues.items() if queue is not None}
        return queues | {str(c["FunctionArn"]): name for name, c in self.functions.items()}


def verify(run: Verification) -> Proof:
    """All parts, in the order in which a message passes them."""
    deployment = _read(run)
    if not deployment.functions:
        raise StepFailedError(f"Tenon isn't deployed for cluster {run.cluster} in this account and Region.")
    problems = [
        *_stack(run),
        *_functions(run, deployment),
        *_queues(run, deployment),
        *_rules(run, deployment),
        *_cluster_side(run, deployment),
        *leases.problems(run, has_relay_function=function_sizes.RELAY in deployment.functions),
    ]
    if problems:
        more = f"; and {plural(len(problems) - _MAX_PROBLEMS, 'more problem')}" if len(problems) > _MAX_PROBLEMS else ""
        raise StepFailedError(f"{'; '.join(problems[:_MAX_PROBLEMS])}{more}.")
    count = len(rules.SCHEDULES) + len(rules.ANNOUNCEMENTS) + len(rules.HINTS)
    return Proof(
        sentence=f"{plural(len(deployment.functions), 'function')}, {plural(len(deployment.queues), 'queue')} and "
        f"{plural(count, 'rule')} are connected, and the leases are renewed."
    )


def _read(run: Verification) -> _Deployment:
    configurations = functions.deployed(run)
    return _Deployment(
        functions=configurations,
        queues={f: _queue(run, purpose) for f, purpose in _QUEUES.items() if f in configurations},
    )


def _queue(run: Verification, purpose: str) -> _Queue | None:
    name = resource_names.queue(run.cluster, purpose, fifo=purpose.startswith(_QUEUES[function_sizes.PROVISIONER]))
    try:
        url = run.aws("sqs").get_queue_url(QueueName=name)["QueueUrl"]
    except ClientError as error:
        if "NonExistentQueue" in error_code(error) or "QueueDoesNotExist" in error_code(error):
            return None
        raise
    attributes = run.aws("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return _Queue(purpose=purpose, arn=attributes["QueueArn"], attributes=attributes)


def _stack(run: Verification) -> Iterator[str]:
    """Problems of the CloudFormation stack; a deployment by other means has none of that name."""
    name = resource_names.stack(run.cluster)
    try:
        (stack,) = run.aws("cloudformation").describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if error_code(error) != "ValidationError":
            raise
        return
    if not stack["StackStatus"].endswith("_COMPLETE") or "ROLLBACK" in stack["StackStatus"]:
        yield f"stack {name} is {stack['StackStatus']}"


def _functions(run: Verification, deployment: _Deployment) -> Iterator[str]:
    needed = [f for f in function_sizes.FUNCTIONS if f not in function_sizes.OPTIONAL]
    if functions.fleet(deployment.functions):
        needed.remove(function_sizes.CATALOG)
    yield from (f"function {f} doesn't exist" for f in needed if f not in deployment.functions)
    for name, configuration in deployment.functions.items():
        state, update = configuration.get("State", "Active"), configuration.get("LastUpdateStatus", "Successful")
        if state != "Active" or update == "Failed":
            yield f"function {name} is {state}, its last update {update}"
        if name in deployment.queues:
            yield from _event_source(run, deployment, name)


def _event_source(run: Verification, deployment: _Deployment, function: str) -> Iterator[str]:
    """Problems of the event source mapping from a function's queue."""
    queue = deployment.queues[function]
    if queue is None:
        return  # which _queues says
    mappings = run.aws("lambda").list_event_source_mappings(EventSourceArn=queue.arn)["EventSourceMappings"]
    own = [m for m in mappings if str(m["FunctionArn"]).endswith(f":{deployment.functions[function]['FunctionName']}")]
    if not own:
        yield f"no event source mapping connects the {queue.purpose} queue with function {function}"
    elif own[0]["State"] not in {"Enabled", "Enabling", "Updating"}:
        yield f"the event source mapping of the {queue.purpose} queue is {own[0]['State']}"


def _queues(run: Verification, deployment: _Deployment) -> Iterator[str]:
    for function, queue in deployment.queues.items():
        if queue is None:
            yield f"the {_QUEUES[function]} queue doesn't exist"
            continue
        if "deadLetterTargetArn" not in queue.attributes.get("RedrivePolicy", ""):
            yield f"the {queue.purpose} queue has no dead-letter queue"
            continue
        yield from _dead_letters(run, f"{queue.purpose}-dead-letters")
    if not functions.fleet(deployment.functions):
        yield from _dead_letters(run, "undelivered")


def _dead_letters(run: Verification, purpose: str) -> Iterator[str]:
    queue = _queue(run, purpose)
    if queue is None:
        yield f"the queue {purpose} doesn't exist"
    elif count := int(queue.attributes["ApproximateNumberOfMessages"]):
        yield f"the queue {purpose} has {plural(count, 'message')} (docs/runbooks.md says what to do)"


def _rules(run: Verification, deployment: _Deployment) -> Iterator[str]:
    own_bus = cluster_manifests.bus_name(run.cluster)
    groups = ((rules.SCHEDULES, ""), (rules.ANNOUNCEMENTS, ""), (rules.HINTS, own_bus))
    for expected, bus in groups:
        for id_, invoked in expected.items():
            present = [f for f in invoked if f in deployment.functions]
            if present:
                yield from _rule(run, deployment, id_, bus=bus, invoked=present)


def _rule(run: Verification, deployment: _Deployment, id_: str, *, bus: str, invoked: list[str]) -> Iterator[str]:
    """Problems of one rule: it is enabled, has all its targets, may send to their queues, and matches its event."""
    name, on_bus = resource_names.rule(run.cluster, id_), {"EventBusName": bus} if bus else {}
    try:
        rule = run.aws("events").describe_rule(Name=name, **on_bus)
    except ClientError as error:
        if error_code(error) != "ResourceNotFoundException":
            raise
        yield f"rule {name} doesn't exist"
        return
    if rule["State"] == "DISABLED":
        yield f"rule {name} is disabled"
    arns = {target["Arn"] for target in run.aws("events").list_targets_by_rule(Rule=name, **on_bus)["Targets"]}
    yield from _targets(deployment, name, rule["Arn"], arns=arns, invoked=invoked)
    if id_ in rules.SAMPLES and not _matches(run, id_, rule["EventPattern"]):
        yield f"rule {name} doesn't match AWS's event"


def _targets(deployment: _Deployment, rule: str, rule_arn: str, *, arns: set[str], invoked: list[str]) -> Iterator[str]:
    """Problems of a rule's targets: each function has one, and the queues among them take the rule's messages."""
    targets = deployment.targets
    reached = {targets.get(arn) for arn in arns}
    yield from (f"rule {rule} has no target for function {function}" for function in invoked if function not in reached)
    for function in invoked:
        queue = deployment.queues.get(function)
        if queue is not None and queue.arn in arns and not _is_allowed(queue, rule_arn):
            yield f"the policy of the {queue.purpose} queue doesn't allow rule {rule}"


def _is_allowed(queue: _Queue, rule_arn: str) -> bool:
    policy = json.loads(queue.attributes.get("Policy") or '{"Statement": []}')
    return any(allows(statement, rule_arn) for statement in policy["Statement"])


def _matches(run: Verification, id_: str, pattern: str) -> bool:
    """Whether EventBridge says that the rule's pattern matches a sample of the event."""
    source, detail_type, detail = rules.SAMPLES[id_]
    event = {
        "id": "7bf73129-1428-4cd3-a780-95db273d1602",
        "account": str(run.description["arn"]).split(":")[4],
        "source": source,
        "time": run.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": run.region,
        "resources": [],
        "detail-type": detail_type,
        "detail": detail,
    }
    result = run.aws("events").test_event_pattern(EventPattern=pattern, Event=json.dumps(event))
    return bool(result["Result"])


def _cluster_side(run: Verification, deployment: _Deployment) -> Iterator[str]:
    """Problems of the CustomResourceDefinitions, and of the functions' ClusterRoles and their bindings."""
    stored = {d["metadata"]["name"]: d for d in run.list_objects(_DEFINITIONS)}
    for crd in cluster_manifests.kinds(capacity_buffers=False):
        name = crd["metadata"]["name"]
        conditions = stored.get(name, {}).get("status", {}).get("conditions") or ()
        if name not in stored:
            yield f"CustomResourceDefinition {name} doesn't exist"
        elif any(c["type"] == "Established" and c["status"] != "True" for c in conditions):
            yield f"CustomResourceDefinition {name} isn't established"
    needed = {
        obj["metadata"]["name"]
        for obj in cluster_manifests.access(list(deployment.functions))
        if obj["kind"] == _BINDINGS.kind
    }
    for resource in (_ROLES, _BINDINGS):
        there = {obj["metadata"]["name"] for obj in run.list_objects(resource)}
        yield from (f"{resource.kind} {name} doesn't exist" for name in sorted(needed - there))
