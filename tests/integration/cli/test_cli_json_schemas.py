"""Schemas of what commands print with --json, for those that need no cluster; `call` checks every other test, too."""

from __future__ import annotations

import json

import jsonschema
import pytest

from cli.json_output import VERSIONS
from tests.integration.cli.command import call
from tests.integration.cli.output_schema import assert_follows_schema


def test_what_needs_no_cluster_follows_its_schema() -> None:
    assert call("catalog", "m5.large", "g5.xlarge", "--json").json
    assert call("simulate", "cli/demo/manifests/spot-default.yaml", "--json").json["nodeClaims"] == []


def test_a_field_that_the_schema_lacks_is_noticed() -> None:
    printed = {"schemaVersion": 1, "cluster": "c", "paused": True, "message": ""}
    assert_follows_schema(["pause", "--json"], json.dumps(printed))
    for wrong in ({**printed, "more": 1}, {"schemaVersion": 1}, {**printed, "schemaVersion": 2}):
        with pytest.raises(jsonschema.ValidationError):
            assert_follows_schema(["pause", "--json"], json.dumps(wrong))


def test_the_schema_is_printed() -> None:
    printed = call("schema", "shadow", "report").json
    assert printed["title"] == "tenon shadow report --json"
    assert call("schema").lines == [f"{name}: version {version}" for name, version in VERSIONS.items()]
    wrong = call("schema", "node")
    assert wrong.code == 2
    assert wrong.err == 'tenon schema: no command "node" prints JSON; the nearest is "nodes"\n'
