"""The steps in their order: what each proves, what it needs, and what it costs.

To add one, write its function in a module of this package (what it is given is a :class:`Verification`, and what it has
seen a :class:`Proof`), and its entry here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.errors import UsageError
from cli.verify import client_token, denials, drain, interruption, one_node, protection, wiring
from cli.verify.result import Proof
from shared.base.plurals import plural
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cli.verify.verification import Verification

POOL, NODE = "pool", "node"


class Step(Struct, kw_only=True):
    """A step. ``aws`` and ``kubernetes`` are the rights that it needs of the user, ``needs`` the steps before it.

    ``minutes`` is how long it usually takes, ``node_minutes`` how long nodes run for it together.
    """

    name: str
    proves: str
    aws: tuple[str, ...]
    kubernetes: tuple[str, ...]
    minutes: float
    prove: Callable[[Verification], Proof]
    needs: tuple[str, ...] = ()
    node_minutes: float = 0.0


def _latencies(run: Verification) -> Proof:
    """The calls so far, and which operation was the slowest."""
    latencies = run.calls.latencies()
    slowest = max(latencies, key=lambda operation: latencies[operation].median)
    return Proof(
        sentence=f"{plural(len(run.calls.all), 'call')} of {plural(len(latencies), 'operation')}; the slowest is "
        f"{slowest}, {latencies[slowest].median:.2f} s (median)."
    )


_READ_CLAIMS = ("get, list on nodeclaims, nodes, events",)
_RUN_PODS = ("create, get, delete on pods", *_READ_CLAIMS)
_READ_INSTANCES = ("ec2:DescribeInstances",)

STEPS: tuple[Step, ...] = (
    Step(
        name="wiring",
        proves="functions, queues, rules, event source mappings, leases and the cluster's side are there and connected",
        aws=(
            "cloudformation:DescribeStacks",
            "events:DescribeRule",
            "events:ListTargetsByRule",
            "events:TestEventPattern",
            "lambda:GetFunctionConfiguration",
            "lambda:ListEventSourceMappings",
            "sqs:GetQueueAttributes",
            "sqs:GetQueueUrl",
        ),
        kubernetes=(
            "list on customresourcedefinitions, clusterroles, clusterrolebindings",
            "get on leases of kube-system",
        ),
        minutes=0.5,
        prove=wiring.verify,
    ),
    Step(
        name=POOL,
        proves="a NodePool and its node class become Ready: images, subnets and security groups are found",
        aws=(),
        kubernetes=("create, get, list, delete on ec2nodeclasses and nodepools",),
        minutes=0.5,
        prove=one_node.verify_pool,
    ),
    Step(
        name="client token",
        proves="CreateFleet launches nothing more for a client token that it knows, so a launch can be repeated",
        aws=(
            "ec2:CreateFleet",
            "ec2:CreateLaunchTemplate",
            "ec2:CreateTags",
            "ec2:DeleteLaunchTemplate",
            *_READ_INSTANCES,
            "ec2:RunInstances",
            "ec2:TerminateInstances",
            "ssm:GetParameter",
        ),
        kubernetes=("get on ec2nodeclasses",),
        needs=(POOL,),
        minutes=0.2,
        node_minutes=1.0,
        prove=client_token.verify,
    ),
    Step(
        name=NODE,
        proves="a pending pod gets a node with visible tags, and the node goes when it is empty",
        aws=_READ_INSTANCES,
        kubernetes=_RUN_PODS,
        needs=(POOL,),
        minutes=4.0,
        node_minutes=4.0,
        prove=one_node.verify_node,
    ),
    Step(
        name="drain",
        proves="a PodDisruptionBudget holds a drain, and the pod is evicted once it allows that",
        aws=_READ_INSTANCES,
        kubernetes=(*_RUN_PODS, "delete on nodeclaims", "create, patch, delete on poddisruptionbudgets"),
        needs=(NODE,),
        minutes=3.5,
        node_minutes=3.5,
        prove=drain.verify,
    ),
    Step(
        name="interruption",
        proves="the node of an interrupted spot instance is drained at once, and goes",
        aws=(*_READ_INSTANCES, "lambda:InvokeFunction"),
        kubernetes=_RUN_PODS,
        needs=(NODE,),
        minutes=3.5,
        node_minutes=5.0,
        prove=interruption.verify,
    ),
    Step(
        name="protection",
        proves="a protected instance says why it stays, keeps no other, and goes when it may",
        aws=(*_READ_INSTANCES, "ec2:ModifyInstanceAttribute"),
        kubernetes=(*_RUN_PODS, "delete on nodeclaims"),
        needs=(NODE,),
        minutes=4.0,
        node_minutes=7.0,
        prove=protection.verify,
    ),
    Step(
        name="denials",
        proves="IAM and RBAC denied the functions nothing meanwhile, as their own logs say",
        aws=("lambda:GetFunctionConfiguration", "logs:FilterLogEvents"),
        kubernetes=(),
        minutes=0.1,
        prove=denials.verify,
    ),
    Step(
        name="latencies",
        proves="how long AWS's calls take here",
        aws=(),
        kubernetes=(),
        minutes=0.0,
        prove=_latencies,
    ),
)
"""All steps."""

FIS_RIGHTS = (
    "fis:CreateExperimentTemplate",
    "fis:DeleteExperimentTemplate",
    "fis:ListExperimentTemplates",
    "fis:StartExperiment",
    "fis:TagResource",
    "iam:PassRole",
)
"""What the step "interruption" needs with --fis-role instead of lambda:InvokeFunction."""
CLEAN_UP_RIGHTS = (
    "ec2:DeleteLaunchTemplate",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplates",
    "ec2:ModifyInstanceAttribute",
    "ec2:TerminateInstances",
)
"""What the clean-up needs."""


def chosen(names: Sequence[str]) -> tuple[Step, ...]:
    """The steps of these names, and those that they need, in order; without names all.

    Raises:
        UsageError: there is no such step.
    """
    known = {step.name: step for step in STEPS}
    for name in names:
        if name not in known:
            raise UsageError(f'--step: there is no step "{name}"; there are {", ".join(known)}')
    wanted = set(names or known)
    for step in reversed(STEPS):  # a step needs earlier ones only
        wanted |= set(step.needs) if step.name in wanted else set()
    return tuple(step for step in STEPS if step.name in wanted)
