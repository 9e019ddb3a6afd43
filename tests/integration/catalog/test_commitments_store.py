"""The commitments in S3, with moto: who reads them, when they are asked for again, and when they don't count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from moto import mock_aws

from shared.base import aws, runtime
from shared.base.blobs import BlobForm
from shared.base.settings import CommitmentSettings
from shared.commitments import store
from shared.commitments.commitment import Commitments, ReservedInstances, SavingsPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKET = "tenon-catalog"
START = datetime(2026, 11, 24, 12, tzinfo=UTC)
ON = CommitmentSettings(cluster_name="demo", commitments="on")
RESERVED = ReservedInstances(id="ri-1", instance_type="m6i.large", count=2, hourly=0.06, ends=START + timedelta(days=1))
PLAN = SavingsPlan(
    id="sp-1",
    kind="EC2Instance",
    family="m6i",
    commitment=1.5,
    rates={"m6i.large": 0.07},
    ends=START + timedelta(hours=2),
)
READ = Commitments(
    fetched_at=START, reserved=(RESERVED,), plans=(PLAN,), usage={"demo": {"m6i.large/us-east-1a": 2}, "": {}}
)


class Bucket:
    """The catalog's bucket, the calls to it, and the time."""

    def __init__(self) -> None:
        self.now = START
        self.calls: list[str] = []

    def count(self, model: Any, **_: object) -> None:
        self.calls.append(model.name)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    watched = Bucket()
    with mock_aws(), runtime.using(runtime.Runtime(environ={}, now=lambda: watched.now)):
        aws.s3().create_bucket(Bucket=BUCKET)
        aws.s3().meta.events.register("before-call", watched.count)
        yield watched


def load(settings: CommitmentSettings = ON) -> Commitments | None:
    return store.load(settings, BUCKET, s3=aws.s3, runtime=runtime.current())


def stored_elsewhere(commitments: Commitments) -> None:
    """What another process stores, which this one's cache doesn't know of."""
    aws.s3().put_object(Bucket=BUCKET, Key=store.KEY, Body=store.FORM.encode(commitments))


@pytest.mark.usefixtures("bucket")
def test_commitments_come_back_as_they_were_stored() -> None:
    size = store.save(aws.s3(), BUCKET, READ, runtime=runtime.current())
    assert load() == READ
    assert store.last_reading(aws.s3(), BUCKET, runtime=runtime.current()) == READ
    assert 0 < size < 500
    assert READ.usage_of("demo") == {("m6i.large", "us-east-1a"): 2}


def test_without_the_option_s3_is_not_asked(bucket: Bucket) -> None:
    stored_elsewhere(READ)
    bucket.calls.clear()
    assert load(CommitmentSettings(cluster_name="demo")) is None
    assert bucket.calls == []


def test_a_warm_process_asks_every_five_minutes(bucket: Bucket) -> None:
    stored_elsewhere(READ)
    assert load() == READ
    newer = Commitments(fetched_at=START + timedelta(minutes=1))
    stored_elsewhere(newer)
    bucket.calls.clear()
    bucket.now += timedelta(minutes=4)
    assert load() == READ
    assert bucket.calls == []
    bucket.now += timedelta(minutes=1)
    assert load() == newer
    bucket.now += timedelta(minutes=5)
    assert load() == newer  # not modified
    assert bucket.calls == ["GetObject", "GetObject"]


@pytest.mark.usefixtures("bucket")
def test_none_that_were_read_are_a_problem_and_no_commitments() -> None:
    commitments = load()
    assert commitments == Commitments(
        fetched_at=START, problem="the catalog function hasn't read the account's commitments yet; it reads them hourly"
    )
    assert store.last_reading(aws.s3(), BUCKET, runtime=runtime.current()) is None


def test_commitments_that_are_too_old_do_not_count(bucket: Bucket) -> None:
    stored_elsewhere(READ)
    bucket.now += store.MAX_AGE
    assert load() == Commitments(fetched_at=START, reserved=(RESERVED,), usage=READ.usage)
    bucket.now += timedelta(seconds=1)
    problem = "the last reading is of 2026-11-24 12:00 UTC, more than 6 hours old"
    assert load() == Commitments(fetched_at=START, problem=problem)
    assert store.last_reading(aws.s3(), BUCKET, runtime=runtime.current()) == READ


def test_commitments_that_have_ended_do_not_count(bucket: Bucket) -> None:
    stored_elsewhere(READ)
    bucket.now += timedelta(hours=2)
    loaded = load()
    assert loaded is not None
    assert (loaded.reserved, loaded.plans) == ((RESERVED,), ())


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"?", "not commitments: "),
        (b"", "not commitments: "),
        (BlobForm(Commitments, version=2, noun="commitments").encode(READ), "commitments of version 2; version 1"),
    ],
)
def test_malformed_commitments_are_a_problem(body: bytes, problem: str) -> None:
    aws.s3().put_object(Bucket=BUCKET, Key=store.KEY, Body=body)
    loaded = load()
    assert loaded is not None
    assert (loaded.reserved, loaded.plans, loaded.usage) == ((), (), {})
    assert f"s3://{BUCKET}/commitments.bin: {problem}" in loaded.problem
    assert store.last_reading(aws.s3(), BUCKET, runtime=runtime.current()) is None


def test_while_s3_fails_the_last_ones_count(bucket: Bucket) -> None:
    aws.s3().delete_bucket(Bucket=BUCKET)
    missing = load()
    assert missing is not None
    assert missing.problem.startswith("the catalog function hasn't read")
    aws.s3().create_bucket(Bucket=BUCKET)
    stored_elsewhere(READ)
    bucket.now += timedelta(minutes=5)
    assert load() == READ
    aws.s3().meta.events.register("before-call.s3.GetObject", denied)
    bucket.now += timedelta(minutes=5)
    assert load() == READ


@pytest.mark.usefixtures("bucket")
def test_a_denied_object_is_a_problem() -> None:
    aws.s3().meta.events.register("before-call.s3.GetObject", denied)
    loaded = load()
    assert loaded is not None
    assert loaded.problem.startswith(f"s3://{BUCKET}/commitments.bin can't be read: ")
    assert "AccessDenied" in loaded.problem


def denied(**_: object) -> Any:
    error = {"Error": {"Code": "AccessDenied", "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    return SimpleNamespace(status_code=403), error
