"""Questions about more instances than one call of EC2's may name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from local.aws.cloud import Cloud
from shared.base import aws, runtime
from shared.launch import instances

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 26, tzinfo=UTC)
UNKNOWN = [f"i-{number:017x}" for number in range(450)]


@pytest.fixture(autouse=True)
def cloud() -> Iterator[None]:
    with Cloud(now=lambda: NOW, sleep=lambda _: None), runtime.using(runtime.Runtime(environ={}, now=lambda: NOW)):
        yield


def test_instances_are_described_by_id_within_the_limit_of_filter_values() -> None:
    launched = aws.ec2().run_instances(ImageId="ami-12c6146b", MinCount=210, MaxCount=210)["Instances"]
    ids = [i["InstanceId"] for i in launched]
    assert [i.id for i in instances.get(aws.ec2(), [*UNKNOWN, *ids])] == sorted(ids)


def test_instances_are_listed_by_launch_group_within_the_limit_of_filter_values() -> None:
    groups = [f"group-{number}" for number in range(450)]
    assert instances.list_by_launch_group(aws.ec2(), "demo", groups) == ()
