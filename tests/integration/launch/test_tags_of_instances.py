"""CreateTags, which each instance of a launch needs for itself."""

from __future__ import annotations

from collections import Counter
from threading import Barrier
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from shared.api import labels
from shared.base import aws
from shared.cloud_provider import LaunchedInstance

if TYPE_CHECKING:
    from shared.instance_types.instance_type import InstanceType

    Types = tuple[InstanceType, ...]

Account = Any
"""The fixture's class: tests can't import from conftest."""

SPOT_OR_NOT = (labels.CAPACITY_TYPE, "In", ["spot", "on-demand"])


@pytest.fixture
def types(account: Account) -> Types:
    return (account.instance_type("m5.large", spot=0.03, on_demand=0.096),)


def test_the_instances_of_a_call_are_tagged_several_at_a_time(account: Account, types: Types) -> None:
    """One by one, 150 instances took longer than the invocation may."""
    side_by_side = Barrier(4)

    def wait(**_: object) -> None:
        side_by_side.wait(timeout=20)

    aws.ec2().meta.events.register("before-call.ec2.CreateTags", wait)

    results = account.launch([account.claim(f"web-{i}", SPOT_OR_NOT) for i in range(8)], types)

    assert not side_by_side.broken
    assert [account.tags(r.instance_id)["karpenter.sh/nodeclaim"] for r in results] == [f"web-{i}" for i in range(8)]


def test_tags_are_tried_again_where_ec2_throttles_them(account: Account, types: Types) -> None:
    throttled = Counter[str]()

    def throttle(params: dict[str, Any], **_: object) -> tuple[SimpleNamespace, dict[str, Any]] | None:
        instance = params["body"]["ResourceId.1"]
        throttled[instance] += 1
        if throttled[instance] > 1:
            return None
        error = {"Code": "RequestLimitExceeded", "Message": "Request limit exceeded."}
        return SimpleNamespace(status_code=503), {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 503}}

    aws.ec2().meta.events.register("before-call.ec2.CreateTags", throttle)  # type: ignore[arg-type] # an answer
    results = account.launch([account.claim(f"web-{i}", SPOT_OR_NOT) for i in range(2)], types)
    assert all(isinstance(r, LaunchedInstance) for r in results)
