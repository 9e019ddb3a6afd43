"""The catalog function of a fleet: silent clusters, undelivered events, and hints of several clusters."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from functions.catalog.handler import handle
from shared.base import aws, hints, metrics, runtime, sweeps

if TYPE_CHECKING:
    from collections.abc import Iterator

TABLE, BUCKET = "tenon--fleet-prod-sweeps", "tenon-catalog"
CLUSTERS = ("a", "a-b", "b")
CONTEXT: Any = SimpleNamespace(
    function_name="tenon--fleet-prod-catalog",
    memory_limit_in_mb=1024,
    invoked_function_arn="arn",
    aws_request_id="request",
    get_remaining_time_in_millis=lambda: 300_000,
)
RULES = "arn:aws:events:us-east-1:123456789012:rule/"
FUNCTIONS = "arn:aws:lambda:us-east-1:123456789012:function:"


@dataclass
class Fleet:
    """The fleet's resources, the time, and what the function writes."""

    capsys: pytest.CaptureFixture[str]
    now: datetime = datetime(2026, 11, 21, 12, tzinfo=UTC)
    environ: dict[str, str] = field(default_factory=dict)

    def check(self) -> list[tuple[str, str, str]]:
        """Check the fleet: cluster, reason and why of what is reported for the fleet."""
        handle({"check": "fleet"}, CONTEXT)
        lines = [json.loads(line) for line in self.capsys.readouterr().out.splitlines() if metrics.UNWELL in line]
        assert all(line[metrics.UNWELL] == [metrics.ALARMING] for line in lines)
        return [(line["cluster"], line["reason"], line["why"]) for line in lines if metrics.FLEET in line]

    def sweep(self, *clusters: str) -> None:
        for cluster in clusters:
            sweeps.record(aws.dynamodb(), TABLE, cluster, now=self.now)

    def undelivered(self, body: dict[str, Any], *, rule: str = "") -> None:
        attributes: Any = {"RULE_ARN": {"DataType": "String", "StringValue": rule}} if rule else {}
        url = self.environ["TENON_UNDELIVERED_QUEUE_URL"]
        aws.sqs().send_message(QueueUrl=url, MessageBody=json.dumps(body), MessageAttributes=attributes)


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Fleet]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    own = Fleet(capsys)
    own.environ |= {
        "TENON_FLEET": "prod",
        "TENON_OBSERVABILITY": "lean",
        "TENON_CATALOG_BUCKET": BUCKET,
        "TENON_CLUSTERS": json.dumps(CLUSTERS),
        "TENON_SWEEPS_TABLE": TABLE,
    }
    with mock_aws(), runtime.using(runtime.Runtime(environ=own.environ, now=lambda: own.now)):
        aws.s3().create_bucket(Bucket=BUCKET)
        aws.dynamodb_with_errors().create_table(
            TableName=TABLE,
            KeySchema=[{"AttributeName": sweeps.PARTITION_KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": sweeps.PARTITION_KEY, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        own.environ["TENON_UNDELIVERED_QUEUE_URL"] = aws.sqs().create_queue(QueueName="undelivered")["QueueUrl"]
        yield own


def test_clusters_that_sweep_are_well(fleet: Fleet) -> None:
    for _ in range(20):
        fleet.sweep(*CLUSTERS)
        assert fleet.check() == []
        fleet.now += timedelta(minutes=5)
        assert fleet.check() == []


def test_a_cluster_without_a_sweep_for_more_than_two_records_is_silent(fleet: Fleet) -> None:
    fleet.sweep(*CLUSTERS)
    fleet.now += timedelta(minutes=11)
    assert fleet.check() == []
    fleet.sweep("a", "b")
    fleet.now += timedelta(minutes=1)
    ((cluster, reason, why),) = fleet.check()
    assert (cluster, reason) == ("a-b", "cluster-silent")
    assert "2026-11-21 12:00" in why
    fleet.sweep("a-b")
    assert fleet.check() == []


def test_a_new_cluster_has_half_an_hour_until_its_first_sweep(fleet: Fleet) -> None:
    for _ in range(4):
        fleet.sweep("a", "b")
        assert fleet.check() == []
        fleet.now += timedelta(minutes=10)
    fleet.sweep("a", "b")
    assert [(cluster, reason) for cluster, reason, _ in fleet.check()] == [("a-b", "cluster-silent")]


def test_a_cluster_that_is_no_longer_listed_is_not_missed(fleet: Fleet) -> None:
    fleet.sweep(*CLUSTERS, "gone")
    fleet.now += timedelta(hours=1)
    fleet.sweep(*CLUSTERS)
    assert fleet.check() == []


@pytest.mark.parametrize(
    ("body", "rule", "cluster", "sender"),
    [
        ({"detail": {}}, f"{RULES}tenon-a-b/tenon-a-b.nodes-changed", "a-b", "tenon-a-b/tenon-a-b.nodes-changed"),
        ({}, f"{RULES}tenon-a.sweep", "a", "tenon-a.sweep"),
        (
            {"requestContext": {"functionArn": f"{FUNCTIONS}tenon-b-lifecycle:$LATEST"}},
            "",
            "b",
            "tenon-b-lifecycle",
        ),
        ({"requestContext": {"functionArn": f"{FUNCTIONS}tenon--fleet-prod-catalog:$LATEST"}}, "", "", "prod-catalog"),
        ({"requestContext": None}, "", "", "unknown"),
        ({}, f"{RULES}tenon-of-a-name-that-was-cut-1a2b3c4d.sweep", "", "tenon-of-a-name-that-was-cut-1a2b3c4d.sweep"),
    ],
)
def test_an_undelivered_event_is_reported_with_its_cluster_and_stays(
    fleet: Fleet, body: dict[str, Any], rule: str, cluster: str, sender: str
) -> None:
    fleet.undelivered(body, rule=rule)
    for _ in range(2):  # it was looked at, not taken
        fleet.sweep(*CLUSTERS)
        ((reported, reason, why),) = fleet.check()
        assert (reported, reason) == (cluster, "dead-letters")
        assert sender in why
        assert "has 1" in why
        fleet.now += timedelta(minutes=1)


def test_undelivered_events_of_several_clusters_are_reported_for_each(fleet: Fleet) -> None:
    fleet.sweep(*CLUSTERS)
    for cluster in ("a", "b", "b"):
        fleet.undelivered({}, rule=f"{RULES}tenon-{cluster}.sweep")
    assert [(cluster, reason) for cluster, reason, _ in fleet.check()] == [("a", "dead-letters"), ("b", "dead-letters")]


def test_a_table_that_cant_be_read_fails_the_check(fleet: Fleet) -> None:
    aws.dynamodb_with_errors().delete_table(TableName=TABLE)
    with pytest.raises(ClientError):
        handle({"check": "fleet"}, CONTEXT)
    assert '"function-errors"' in fleet.capsys.readouterr().out


def test_a_hint_of_another_cluster_is_refused(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    for cluster in ("other", ["a"], None):
        event = {"source": hints.FUNCTIONS, "detail-type": hints.CATALOG_MISSING, "detail": {"cluster": cluster}}
        handle(event, CONTEXT)
    whys = [str(vars(record)["why"]) for record in caplog.records if record.message == "A malformed event"]
    assert len(whys) == 3
    assert 'expected "a, a-b, b"' in whys[0]
    assert fleet.check() == []
    assert "Contents" not in aws.s3().list_objects_v2(Bucket=BUCKET)
