"""The seeded faults of ``python -m tests.faults`` fit the code as it is: who moves code moves them, too."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.faults import detections, suites
from tests.faults.fault import Fault, load
from tests.unit.code.source import PACKAGES, ROOT

FAULTS = load()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_fault_is_where_the_file_says_and_changes_what_the_code_does(fault: Fault) -> None:
    text = (ROOT / fault.file).read_text(encoding="utf-8")
    assert ast.dump(ast.parse(fault.applied(text))) != ast.dump(ast.parse(text))


def test_every_package_of_the_product_has_faults_of_its_own() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS) == 60
    assert {Path(fault.file).parts[0] for fault in FAULTS} == set(PACKAGES) - {"bench", "distribution", "docs"}


def test_the_test_that_noticed_a_fault_is_there_and_make_test_runs_most_of_them() -> None:
    recorded = detections.load()
    assert recorded.keys() == {fault.id for fault in FAULTS}
    assert [fault for fault, detection in recorded.items() if not detection.function] == []
    assert sum(detection.target == suites.TEST.target for detection in recorded.values()) >= 52
