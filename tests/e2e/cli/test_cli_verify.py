"""`tenon verify` of a healthy deployment: every step passes, the report can be published, and nothing is left."""

from __future__ import annotations

import json
import os
import re
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cli.errors import INTERRUPTED
from cli.verify.objects import LABEL
from cli.verify.steps import STEPS
from local.aws.latencies import Latency, table
from local.kubernetes import kinds
from local.world import sample_objects
from tests.e2e.cli.verified_world import CLUSTER, VerifiedWorld, verified_world
from tests.integration.cli.command import call

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = [step.name for step in STEPS]


@pytest.fixture(scope="module")
def verified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VerifiedWorld]:
    with verified_world(tmp_path_factory.mktemp("verify")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(verified: VerifiedWorld) -> dict[str, Any]:
    """The report of a whole run, which passed."""
    done = verified.tenon("--yes", "--json")
    assert done.code == 0, done.out + done.err
    read: dict[str, Any] = done.json
    return read


@pytest.mark.flow
def test_every_step_passes_within_a_quarter_of_an_hour_and_nothing_is_left(
    verified: VerifiedWorld, report: dict[str, Any]
) -> None:
    assert {step["step"]: step["status"] for step in report["steps"]} == dict.fromkeys(NAMES, "passed")
    assert report["passed"]
    assert report["leftOver"] == verified.left() == []
    assert report["seconds"] < 15 * 60
    assert 0 < report["usd"] < 0.10
    assert (verified.world.dead_letters(), verified.world.failures()) == ([], [])


def test_the_report_has_timings_of_every_call_and_nothing_that_an_issue_must_not_have(
    verified: VerifiedWorld, report: dict[str, Any]
) -> None:
    measured = {m["name"] for step in report["steps"] for m in step["measured"]}
    assert {"CreateFleet", "node Ready", "tags visible after the launch", "gone after its pod"} <= measured
    assert {"ec2.CreateFleet", "ec2.DescribeInstances", "eventbridge.DescribeRule"} <= report["latencies"].keys()
    assert sum(latency["count"] for latency in report["latencies"].values()) == len(report["calls"])
    assert {call["step"] for call in report["calls"]} >= {"wiring", "client token", "node", "clean-up"}
    rows = msgspec.yaml.decode(verified.latencies.read_bytes(), type=tuple[Latency, ...])
    measured_rows = {f"{row.service}.{row.operation}": (row.median, row.p99) for row in rows}
    assert measured_rows == {name: (v["median"], v["p99"]) for name, v in report["latencies"].items()}
    assert report["latencies"]["ec2.CreateFleet"]["assumedMedian"] == table()["ec2", "CreateFleet"].median
    page = verified.page.read_text()
    assert all(step in page for step in NAMES)
    assert "http://" not in page
    assert "https://" not in page
    for text in (json.dumps(report), page):
        assert re.search(r"\b\d{12}\b|arn:aws|\b10\.0\.\d+\.\d+|10-0-\d+-\d+", text) is None


def test_the_plan_makes_nothing(verified: VerifiedWorld) -> None:
    called: list[str] = []
    changed: list[str] = []
    verified.world.aws.calls.observe(lambda call_: called.append(call_.operation))
    stop = verified.world.store.subscribe(lambda change: changed.append(change.type))
    plan = verified.tenon("--dry-run", "--json").json
    shown = verified.tenon("--dry-run")
    stop()
    assert [operation for operation in called if not operation.startswith(("Describe", "Get", "List"))] == []
    assert changed == []
    assert [step["step"] for step in plan["steps"]] == NAMES
    assert plan["minutes"] == pytest.approx(15, abs=2)
    assert 0 < plan["usd"] < 0.10
    assert "lambda:InvokeFunction" in shown.out
    assert "ec2:CreateFleet" in shown.out
    with_role = verified.tenon("--dry-run", "--json", "--fis-role", "arn:aws:iam::1:role/fis").json
    assert with_role["usd"] > plan["usd"]
    assert any("fis:StartExperiment" in step["aws"] for step in with_role["steps"])


def test_nothing_is_made_before_it_is_confirmed(verified: VerifiedWorld) -> None:
    prompted = verified.tenon()
    assert prompted.code != 0
    assert verified.left() == []
    assert re.search(
        rf"Verify {CLUSTER}: about \d+ minutes, at most \$0\.\d\d\. Continue\?", prompted.out + prompted.err
    )


def test_fis_interrupts_the_instance(verified: VerifiedWorld) -> None:
    steps = verified.steps("interruption", fis_role="arn:aws:iam::123456789012:role/fis")
    assert steps["interruption"]["sentence"].startswith("AWS FIS interrupted the instance")
    assert len(verified.world.aws.fault_injection.experiments) == 1


def test_an_existing_node_class_is_copied(verified: VerifiedWorld) -> None:
    verified.world.apply(sample_objects.node_class(verified.world, detailedMonitoring=True))
    steps = verified.steps("pool", node_class="default")
    assert steps["pool"]["status"] == "passed"
    missing = verified.steps("pool", node_class="absent")
    assert missing["pool"]["sentence"] == 'There is no EC2NodeClass "absent".'


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_cleans_up(verified: VerifiedWorld, number: signal.Signals) -> None:
    def interrupt(_delivery: object) -> None:
        if verified.world.store.list(kinds.PODS, labels=LABEL) and not interrupted:
            interrupted.append(True)
            os.kill(os.getpid(), number)

    interrupted: list[bool] = []
    verified.world.aws.event_buses.observe(interrupt)
    done = verified.tenon("--yes", "--step", "node")
    assert interrupted
    assert done.code == INTERRUPTED
    assert verified.left() == []


def test_a_step_that_does_not_exist_is_a_usage_error() -> None:
    wrong = call("verify", CLUSTER, "--step", "wirings")
    assert wrong.code == 2
    assert 'there is no step "wirings"' in wrong.err
