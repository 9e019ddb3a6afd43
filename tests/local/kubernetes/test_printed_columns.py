"""What kubectl prints in a column."""

from __future__ import annotations

from typing import Any

import pytest

from local.kubernetes import kinds
from local.kubernetes.apiserver import printers


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11160, "3h6m"),
        (28800, "8h"),
        (172800, "2d"),
        (180000, "2d2h"),
        (864000, "10d"),
    ],
)
def test_an_age_has_two_units_at_most(seconds: int, text: str) -> None:
    now = f"2026-01-20T00:00:{max(-seconds, 0):02}Z"
    if seconds < 0:
        assert printers.duration(now, "2026-01-20T00:00:00Z") == text
        return
    days, rest = divmod(seconds, 86400)
    hours, minutes = divmod(rest, 3600)
    later = f"2026-01-{1 + days:02}T{hours:02}:{minutes // 60:02}:{minutes % 60:02}Z"
    assert printers.duration("2026-01-01T00:00:00Z", later) == text


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (".spec.weight", [3]),
        (".spec.missing.deeper", []),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[*].type", ["Other", "Ready"]),
        (".status.conditions[1].type", ["Ready"]),
        (".metadata.labels['example.com/zone']", ["a"]),
    ],
)
def test_a_printer_column_follows_its_path(path: str, values: list[Any]) -> None:
    obj = {
        "metadata": {"labels": {"example.com/zone": "a"}},
        "spec": {"weight": 3},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    assert printers.json_path(obj, path) == values


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        ({"metadata": {}, "status": {"phase": "Running"}}, "Running"),
        ({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Running"}}, "Terminating"),
        (
            {
                "metadata": {},
                "status": {
                    "phase": "Pending",
                    "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}],
                },
            },
            "ContainerCreating",
        ),
    ],
)
def test_a_pods_status_column_shows_the_most_specific_reason(obj: dict[str, Any], text: str) -> None:
    status = next(column for column in printers.columns_of(kinds.PODS, None) if column.name == "Status")
    assert status.cell(obj, "") == text


def test_a_cordoned_nodes_status_has_scheduling_disabled() -> None:
    node = {
        "metadata": {},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    status = next(column for column in printers.columns_of(kinds.NODES, None) if column.name == "Status")
    assert status.cell(node, "") == "Ready,SchedulingDisabled"
