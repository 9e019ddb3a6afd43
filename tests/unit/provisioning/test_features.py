from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shared.api import labels as names
from shared.api.kubernetes import Pod, PodSpec, PodStatus
from shared.api.meta import Condition, ObjectMeta
from shared.api.nodeclaim import NodeClaim
from shared.api.nodepool import NodePool, NodePoolSpec
from shared.base.settings import ProvisioningSettings
from shared.base.struct import with_fields
from shared.provisioning.features.doors import FEATURES
from shared.provisioning.round import Provisioning, Round, schedule_with
from shared.snapshot import Snapshot

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def settings(**options: str) -> ProvisioningSettings:
    return ProvisioningSettings(
        cluster_name="demo",
        table_name="table",
        catalog_bucket="bucket",
        event_bus_name="bus",
        node_instance_profile="nodes",
        **cast("Any", options),
    )


def round_of(*, annotations: dict[str, str] | None = None, **objects: object) -> Round:
    return Round(
        lease=cast("Any", SimpleNamespace(annotations=annotations or {})),
        now=NOW,
        attempt=0,
        leaving=frozenset(),
        decision_id="run/0",
        snapshot=Snapshot(taken_at=NOW, **cast("Any", objects)),
        schedule=schedule_with,
    )


def names_of_features(round_: Round, **options: str) -> list[str]:
    """The features that are on, without reading anything else than the round."""
    parts = dict.fromkeys(("client", "recorder", "cloud_provider", "catalog", "logger"))
    provisioning = Provisioning(
        **cast("Any", parts), settings=settings(**options), run="run", by="provisioner", clock=lambda: NOW
    )
    return [type(feature).__name__ for door in FEATURES if (feature := door(provisioning, round_))]


def test_the_order_of_the_features_is_the_documented_one() -> None:
    assert [door.__name__ for door in FEATURES] == [
        "_gangs",
        "_hourly_limits",
        "_zonal_shift",
        "_pause",
        "_standby_nodes",
        "_expected_growth",
        "_launch_options",
        "_static_pools",
        "_node_groups",
        "_displaced_pods",
        "_pod_annotations",
    ]


def test_without_optional_features_a_round_only_reads_what_can_be_launched() -> None:
    pool = NodePool(metadata=ObjectMeta(name="default"))
    pod = Pod(metadata=ObjectMeta(namespace="default", name="web", creation_timestamp=NOW), spec=PodSpec())
    assert names_of_features(round_of(node_pools=(pool,), pods=(pod,))) == ["LaunchOptions"]


@pytest.mark.parametrize(
    ("objects", "annotations", "expected"),
    [
        ({"node_pools": (NodePool(metadata=ObjectMeta(name="a", annotations={names.STANDBY: "1"})),)}, {}, "Standby"),
        ({"node_pools": (NodePool(metadata=ObjectMeta(name="a"), spec=NodePoolSpec(replicas=2)),)}, {}, "StaticPools"),
        ({"node_claims": (NodeClaim(metadata=ObjectMeta(name="a")),)}, {}, "DisplacedPods"),
        ({}, {names.PAUSED: "maintenance"}, "PausedProvisioning"),
        ({}, {names.SHIFTED_ZONES: "a=2026-11-26T13:00:00Z"}, "ZonalShift"),
        (
            {
                "pods": (
                    Pod(metadata=ObjectMeta(name="a", creation_timestamp=NOW, annotations={names.SPOT_SHARE: "70%"})),
                )
            },
            {},
            "PodAnnotations",
        ),
    ],
)
def test_a_feature_is_on_where_an_object_or_the_lease_asks_for_it(
    objects: dict[str, Any], annotations: dict[str, str], expected: str
) -> None:
    assert expected in names_of_features(round_of(annotations=annotations, **objects))


def test_growth_is_expected_in_clusters_with_older_nodes_unless_a_nodepool_says_not() -> None:
    def features(age: timedelta, **annotations: str) -> list[str]:
        claim = NodeClaim(metadata=ObjectMeta(name="a", creation_timestamp=NOW - age))
        pool = NodePool(metadata=ObjectMeta(name="a", annotations={"tenon.sh/" + k: v for k, v in annotations.items()}))
        return names_of_features(round_of(node_claims=(claim,), node_pools=(pool,)))

    assert "ExpectedGrowth" not in features(timedelta(minutes=29))
    assert "ExpectedGrowth" in features(timedelta(minutes=30))
    assert "ExpectedGrowth" not in features(timedelta(hours=1), **{"cluster-expected-growth": "false"})


def test_a_zonal_shift_that_has_ended_is_none() -> None:
    assert names_of_features(round_of(annotations={names.SHIFTED_ZONES: f"a={NOW.isoformat()}"})) == ["LaunchOptions"]


def test_node_groups_are_not_asked_for_nodes_while_the_cluster_is_paused() -> None:
    pause = names_of_features(round_of(annotations={names.PAUSED: "maintenance"}), node_groups="off")
    assert pause == ["PausedProvisioning", "LaunchOptions"]
    paused = with_fields(round_of(), pause=cast("Any", object()))
    assert names_of_features(paused, node_groups="on") == ["LaunchOptions"]


def test_a_pod_that_waits_for_long_may_have_lost_machines_whose_claims_are_gone() -> None:
    unscheduled = Condition(type="PodScheduled", status="False", last_transition_time=NOW - timedelta(minutes=1))
    status = PodStatus(conditions=[unscheduled])
    pod = Pod(metadata=ObjectMeta(namespace="default", name="web"), spec=PodSpec(), status=status)
    assert names_of_features(round_of(pods=(pod,))) == ["LaunchOptions", "DisplacedPods"]


def test_no_feature_is_imported_before_it_is_on() -> None:
    program = (
        "import sys, functions.provisioner.handler\n"
        "print(*(m for m in sys.modules if m.startswith(('shared.provisioning.features.', 'shared.standby', "
        "'shared.node_groups', 'shared.scheduling.static_pools', 'shared.scheduling.spot_shares'))))"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.split() == ["shared.provisioning.features.doors"]
