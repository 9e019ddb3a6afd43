"""The options of node groups: Cluster Autoscaler's flags, in a ConfigMap's data."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shared.node_groups.options import FLAGS, PREFER, NodeGroupOptions, parse


def test_without_data_the_defaults_of_cluster_autoscaler() -> None:
    options, problems = parse({}, {})
    assert (options, problems) == (NodeGroupOptions(), ())
    assert options.scale_down_utilization_threshold == 500
    assert options.scale_down_unneeded_time == options.scale_down_delay_after_add == timedelta(minutes=10)
    assert options.max_node_provision_time == timedelta(minutes=15)


def test_values_are_read_by_the_names_of_flags() -> None:
    options, problems = parse(
        {
            "expander": "priority,least-waste",
            "groups": "workers, gpu",
            "max-nodes-total": "0",
            "scale-down-utilization-threshold": "0.65",
            "scale-down-unneeded-time": "1h30m",
            "skip-nodes-with-local-storage": "false",
            "max-empty-bulk-delete": " 3 ",
        },
        {PREFER: "pools"},
    )
    assert problems == ()
    assert options == NodeGroupOptions(
        expander=("priority", "least-waste"),
        prefer="pools",
        groups=("gpu", "workers"),
        max_nodes_total=None,
        scale_down_utilization_threshold=650,
        scale_down_unneeded_time=timedelta(minutes=90),
        skip_nodes_with_local_storage=False,
        max_empty_bulk_delete=3,
    )


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("expander", "cheapest", '"cheapest" is unknown; allowed is price,'),
        ("scale-down-utilization-threshold", "50%", '"50%" is not a share from 0 to 1'),
        ("scale-down-unneeded-time", "ten minutes", "is not a duration"),
        ("scale-down-unneeded-time", "Never", '"Never" is not a duration'),
        ("scale-down-enabled", "yes", '"yes" is neither true nor false'),
        ("max-nodes-total", "-1", '"-1" is not a number of 0 or more'),
        ("scan-interval", "10s", 'option "scan-interval" is unknown'),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_keeps_its_default(name: str, text: str, why: str) -> None:
    options, problems = parse({name: text}, {})
    assert options == NodeGroupOptions()
    (problem,) = problems
    assert name in problem
    assert why in problem


def test_the_rules_of_scale_down_are_an_annotation() -> None:
    options, problems = parse({}, {"tenon.sh/scale-down": "consolidation"})
    assert (options.consolidates, problems) == (True, ())
    options, (problem,) = parse({}, {"tenon.sh/scale-down": "never"})
    assert not options.consolidates
    assert 'tenon.sh/scale-down: "never" is unknown' in problem


def test_an_unknown_preference_is_a_problem() -> None:
    options, (problem,) = parse({}, {PREFER: "spot"})
    assert options.prefer == ""
    assert PREFER in problem


def test_each_option_is_a_field() -> None:
    by_annotation = {"prefer", "consolidates"}
    assert {name.replace("-", "_") for name in FLAGS} == set(NodeGroupOptions.__struct_fields__) - by_annotation
