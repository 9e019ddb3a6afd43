"""The page of Karpenter's suites: every spec that hasn't passed is on it, and none without a reason is let through."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.karpenter import report, suites
from tests.karpenter.report import Spec

if TYPE_CHECKING:
    from pathlib import Path

REASONS = {"CapacityBuffer": "not provided yet", "CapacityBuffer limits should hold": "needs limits of buffers"}


def test_specs_of_a_report_have_their_containers_in_their_names(tmp_path: Path) -> None:
    path = _report(
        tmp_path,
        _entry("should replace it", "failed", containers=["Drift", "Budgets"], message="timed out"),
        _entry("", "passed", kind="BeforeSuite"),
    )

    specs = report.read(path)

    assert specs == [Spec(name="Drift Budgets should replace it", state="failed", message="timed out", seconds=2.0)]


def test_specs_that_the_flags_left_out_are_not_counted_but_those_that_skip_themselves_are(tmp_path: Path) -> None:
    path = _report(
        tmp_path,
        _entry("left out", "skipped"),
        _entry("skips itself", "skipped", message="only valid for K8s >= 1.28"),
        _entry("pending", "pending"),
    )

    specs = report.read(path)

    assert [spec.name for spec in specs] == ["skips itself", "pending"]
    assert report.unexplained(specs, {}) == specs


def test_a_reason_is_found_by_the_longest_name_that_is_the_specs_or_a_containers() -> None:
    assert report.reason(Spec(name="CapacityBuffer should scale", state="failed"), REASONS) == "not provided yet"
    limits = Spec(name="CapacityBuffer limits should hold", state="failed")
    assert report.reason(limits, REASONS) == "needs limits of buffers"
    assert not report.reason(Spec(name="CapacityBuffers should scale", state="failed"), REASONS)


def test_a_failure_without_a_reason_and_a_reason_without_a_failure_are_found() -> None:
    specs = [
        Spec(name="CapacityBuffer should scale", state="failed"),
        Spec(name="CapacityBuffer limits should hold", state="passed"),
        Spec(name="Drift should replace it", state="timedout"),
    ]

    assert report.unexplained(specs, REASONS) == [specs[2]]
    assert report.outdated(specs, REASONS) == ["CapacityBuffer limits should hold"]


def test_a_later_run_replaces_the_results_of_its_specs_only() -> None:
    first = [Spec(name="a", state="failed"), Spec(name="b", state="passed")]
    second = [Spec(name="a", state="passed")]

    assert report.merged([first, second]) == [second[0], first[1]]


def test_the_page_has_the_count_and_each_spec_not_passed_with_its_reason() -> None:
    specs = [
        Spec(name="CapacityBuffer should scale", state="failed", seconds=30),
        Spec(name="Drift should replace it", state="passed", seconds=90),
    ]

    page = report.page({"regression": specs}, REASONS, version="v1.15.0", run="Run today.")

    assert "Karpenter v1.15.0" in page
    assert "1 of 2 specs passed; their durations sum to 2 minutes." in page
    assert "| CapacityBuffer should scale | failed | not provided yet |" in page
    assert "| Drift" not in page
    assert page.endswith("Run today.\n")


def _entry(
    text: str, state: str, *, kind: str = "It", containers: list[str] | None = None, message: str = ""
) -> dict[str, Any]:
    entry = {
        "LeafNodeType": kind,
        "LeafNodeText": text,
        "ContainerHierarchyTexts": containers,
        "State": state,
        "RunTime": 2_000_000_000,
    }
    return {**entry, "Failure": {"Message": message}} if message else entry


def test_specs_have_the_annotations_of_the_feature_gates_that_they_need() -> None:
    reboot, terminate, drift = (
        suites.node_pool(suites.container(f"{name} should do it"))["metadata"]["annotations"]
        for name in ("Reboot", "TerminateFirst", "Drift")
    )

    assert reboot == {"tenon.sh/repair": "reboot"}
    assert terminate == {"tenon.sh/repair": "true", "tenon.sh/terminate-first": "true"}
    assert drift == {"tenon.sh/repair": "true"}


def _report(folder: Path, *entries: dict[str, Any]) -> Path:
    path = folder / "report.json"
    path.write_text(json.dumps([{"SpecReports": entries}]))
    return path
