"""Bills of materials, and the comparison of the pinned versions with advisories."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distribution import audit, sbom
from infra import installation
from infra.bundle import bundling, requirements_lock

ANSWER: dict[str, Any] = {
    "dependencies": [
        {"name": "idna", "version": "3.6", "vulns": []},
        {"name": "urllib3", "version": "2.2.0", "vulns": [{"id": "PYSEC-2024-1", "fix_versions": ["2.2.2"]}]},
        {"name": "private", "skip_reason": "Dependency not found on PyPI and could not be audited: private (1.0)"},
    ]
}
"""As pip-audit answers with --format json."""


@pytest.fixture(scope="module")
def bills() -> dict[str, Any]:
    return {"wheel": sbom.wheel(), "webhook": sbom.function("webhook")}


def versions(bill: dict[str, Any]) -> dict[str, str]:
    return {c["name"]: c["version"] for c in bill["components"]}


def test_the_wheels_bill_has_its_dependencies_in_the_versions_of_the_lock_and_what_is_from_npm(
    bills: dict[str, Any],
) -> None:
    pins = requirements_lock.parse(installation.lock(installation.ROOT).read_text())
    listed = versions(bills["wheel"])
    assert {"boto3", "kubernetes", "rich", "uplot", "moto", "aws-cdk-lib", "prometheus-client"} <= listed.keys()
    assert {name: version for name, version in listed.items() if name != "uplot"} == {
        name: pins[name].version for name in listed if name != "uplot"
    }
    assert not {"pytest", "mypy"} & listed.keys()


def test_a_bundles_bill_has_its_packages_without_those_of_lambdas_runtime(bills: dict[str, Any]) -> None:
    listed = versions(bills["webhook"])
    assert "msgspec" in listed
    assert not bundling.RUNTIME & listed.keys()


def test_dependencies_name_components_of_the_bill_and_the_same_sources_give_the_same_bytes(
    bills: dict[str, Any],
) -> None:
    for bill in bills.values():
        references = {bill["metadata"]["component"]["bom-ref"], *(c["bom-ref"] for c in bill["components"])}
        assert {d["ref"] for d in bill["dependencies"]} == references
        assert {ref for d in bill["dependencies"] for ref in d["dependsOn"]} <= references
    assert json.dumps(sbom.wheel()) == json.dumps(bills["wheel"])


def test_an_advisory_names_the_package_and_the_version_that_mends_it() -> None:
    assert audit.vulnerabilities(ANSWER) == ["urllib3 2.2.0: PYSEC-2024-1, fixed in 2.2.2"]


def test_a_package_without_an_answer_is_no_package_without_advisories() -> None:
    assert audit.unaudited(ANSWER) == ["private"]


def test_the_lock_has_a_hash_for_every_package() -> None:
    text = installation.lock(installation.ROOT).read_text()
    assert [line for line in text.splitlines() if "==" in line and not line.endswith("\\")] == []
    assert all(pin.hashes for pin in requirements_lock.parse(text).values())
