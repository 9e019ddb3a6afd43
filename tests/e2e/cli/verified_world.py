"""A deployment with the relay function, and `tenon verify` of it: while the command sleeps, the cluster runs."""

from __future__ import annotations

import contextlib
import io
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import boto3

from cli.cluster.cluster_reference import ClusterReference
from cli.verify import run
from cli.verify.objects import LABEL, TAG
from cli.verify.steps import chosen
from cli.verify.verification import Settings
from local.aws.calls import CALLER
from local.faults import Fault
from local.kubelets.behavior import NORMAL
from local.kubernetes import kinds
from local.world import Options, World
from shared.base import runtime
from tests.integration.cli.command import CommandResult, call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cli.verify.output import VerificationReport
    from cli.verify.verification import Verification
    from local.faults import InjectionPoint
    from local.kubelets.behavior import MachineBehavior
    from local.kubernetes.objects import Obj

CLUSTER = "demo"
COMMAND = "verify"
"""The caller of the command's requests, where a test lets them crash."""
FIS_ROLE = "arn:aws:iam::123456789012:role/fis"
ALWAYS = 1_000_000
"""How often a fault occurs that doesn't end."""
READS = ("GET", "Get", "Describe", "List", "Filter", "Test")


class VerifiedWorld:
    """The world, its kubeconfig, and the command."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.behavior = NORMAL
        self.page, self.latencies = folder / "verify.html", folder / "latencies.yaml"
        self._kubeconfig = folder / "kubeconfig"
        self._kubeconfig.write_text(world.kubectl_config())

    def tenon(self, *arguments: str) -> CommandResult:
        """`tenon verify demo …`, which writes its page and the latencies."""
        with runtime.using(self._shell()):
            files = ("--html", str(self.page), "--latencies", str(self.latencies))
            return call("verify", CLUSTER, *arguments, *files, env={"KUBECONFIG": str(self._kubeconfig)})

    def steps(self, *names: str, **options: str) -> dict[str, dict[str, Any]]:
        """The results of these steps, and those that they need, by name. Nothing is left."""
        only = [word for name in names for word in ("--step", name)]
        further = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        report = self.tenon("--yes", "--json", *only, *further).json
        assert report["leftOver"] == self.left() == []
        return {step["step"]: step for step in report["steps"]}

    def begin(self) -> Verification:
        """A run in this process."""
        os.environ["KUBECONFIG"] = str(self._kubeconfig)
        with runtime.using(self._shell()):
            return run.begin(
                ClusterReference(cluster=CLUSTER),
                Settings(node_class="", pod_image="pause", fis_role="arn:aws:iam::1:role/fis"),
            )

    def verify(self, begun: Verification, *names: str) -> VerificationReport:
        """The run, until its end or crash."""
        caller = CALLER.set(COMMAND)
        try:
            with runtime.using(self._shell()):
                return run.verify(begun, chosen(names), show=lambda _result: None)
        finally:
            CALLER.reset(caller)

    def left(self) -> list[str]:
        """What is left of runs in the cluster and on AWS."""
        world = self.world
        stored = [kinds.NAMESPACES, kinds.NODES, kinds.PODS]
        stored += [world.store.kind("karpenter.sh/v1", kind) for kind in ("NodePool", "NodeClaim")]
        stored += [world.store.kind("karpenter.k8s.aws/v1", "EC2NodeClass")]
        left = [f"{o['kind']} {o['metadata']['name']}" for kind in stored for o in world.store.list(kind, labels=LABEL)]
        with world.aws.lock:
            left += [i.id for i in world.instances() if TAG in {tag["key"] for tag in i.get_tags()}]
        templates = boto3.client("ec2").describe_launch_templates()["LaunchTemplates"]
        left += [str(t["LaunchTemplateName"]) for t in templates if TAG in {tag["Key"] for tag in t.get("Tags", [])}]
        return [*left, *world.aws.fault_injection.templates]

    def edit_role(self, name: str, resource: str, verb: str) -> contextlib.AbstractContextManager[None]:
        """While entered, a function's ClusterRole doesn't have the verb on the resource."""
        return _without_verb(self.world, name, resource, verb)

    def _shell(self) -> runtime.Runtime:
        return runtime.Runtime(environ=os.environ, now=self.world.clock.now, sleep=self._sleep)

    def _sleep(self, seconds: float) -> None:
        caller = CALLER.set("")
        try:
            # what functions print would be in the command's output
            with contextlib.redirect_stdout(io.StringIO()):
                self.world.run_for(timedelta(seconds=seconds))
        finally:
            CALLER.reset(caller)


class Kill:
    """Kills the command after some of a step's writing calls: from then on each of its calls crashes."""

    def __init__(self, begun: Verification, step: str, writes: int) -> None:
        self._begun = begun
        self._step = step
        self._remaining = writes
        self.is_dead = False

    def inject(self, world: World) -> None:
        """From now on."""
        world.faults.inject(self._dies_here, Fault(crash="before"), times=ALWAYS)

    def _dies_here(self, point: InjectionPoint) -> bool:
        if point.caller != COMMAND:
            return False
        writes = not point.operation.startswith(READS)
        if not self.is_dead and writes and self._begun.calls.step == self._step:
            self.is_dead = self._remaining == 0
            self._remaining -= 1
        return self.is_dead


@contextlib.contextmanager
def verified_world(folder: Path) -> Iterator[VerifiedWorld]:
    """A deployment whose first sweeps have run."""
    opened: list[VerifiedWorld] = []

    def behavior(_machine: object) -> MachineBehavior:
        return opened[0].behavior if opened else NORMAL

    with World(cluster=CLUSTER, options=Options(context={"relay": "function"}, behavior=behavior)) as world:
        opened.append(VerifiedWorld(world, folder))
        world.run_for(timedelta(minutes=2))
        yield opened[0]


@contextlib.contextmanager
def faults(verified: VerifiedWorld, *, settle: timedelta = timedelta()) -> Iterator[None]:
    """What was injected before this is entered goes at its end; denials of functions are expected."""
    verified.world.run_for(settle)
    try:
        yield
    finally:
        verified.world.faults.clear()
        verified.world.expect_denials()


def assert_one_sentence(text: str) -> None:
    assert text.endswith(".")
    assert "\n" not in text
    assert "Traceback" not in text


@contextlib.contextmanager
def _without_verb(world: World, name: str, resource: str, verb: str) -> Iterator[None]:
    kind = world.store.kind("rbac.authorization.k8s.io/v1", "ClusterRole")
    rules: list[Obj] = world.store.get(kind, name)["rules"]
    fewer = [
        {**rule, "verbs": [v for v in rule["verbs"] if v != verb or resource not in rule["resources"]]}
        for rule in rules
    ]
    world.store.patch(kind, name, {"rules": [rule for rule in fewer if rule["verbs"]]})
    try:
        yield
    finally:
        world.store.patch(kind, name, {"rules": rules})
        world.expect_denials()
