from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.base import hints
from shared.base.settings import Settings, SettingsError, read

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Example(Settings, frozen=True, kw_only=True):
    table_name: str
    limit: int = 3


@given(st.lists(st.text(max_size=30), min_size=1, max_size=250))
def test_sent_hints_are_parsed_again_with_at_most_a_hundred_keys_each(keys: list[str]) -> None:
    sent = [hints.parse(b, cluster="demo") for b in hints.message_bodies("Drain", cluster="demo", keys=keys, time=NOW)]
    assert [k for h in sent for k in h.keys] == keys
    assert all(len(h.keys) <= hints.MAX_KEYS for h in sent)
    assert {(h.detail_type, h.source, h.time) for h in sent} == {("Drain", hints.FUNCTIONS, NOW)}


@pytest.mark.parametrize(
    "body",
    [
        "",
        "garbage",
        "[]",
        "{}",
        '{"source": 1, "detail-type": "x", "detail": {}}',
        '{"source": "tenon.relay", "detail-type": "Drain", "detail": "x"}',
        '{"source": "tenon.relay", "detail-type": "Drain", "detail": {"cluster": "other", "keys": []}}',
        '{"source": "tenon.relay", "detail-type": "Drain", "detail": {"cluster": "demo", "keys": [1]}}',
        b"\xff\xfe",
    ],
)
def test_any_other_message_is_malformed(body: str | bytes) -> None:
    with pytest.raises(hints.MalformedHintError):
        hints.parse(body, cluster="demo")


def test_a_scheduled_event_is_a_hint_without_a_cluster() -> None:
    event = {
        "source": "aws.events",
        "detail-type": "Scheduled Event",
        "detail": {},
        "time": "2026-05-01T12:00:00Z",
        "resources": ["arn:aws:events:us-east-1:1:rule/x"],
    }
    assert hints.parse(event, cluster="demo").detail_type == hints.SCHEDULED
    assert hints.parse(json.dumps(event), cluster="demo").detail_type == hints.SCHEDULED


def test_a_missing_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="TENON_TABLE_NAME"):
        read(Example, {"TENON_CLUSTER_NAME": "demo"})


def test_a_malformed_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="limit"):
        read(Example, {"TENON_CLUSTER_NAME": "demo", "TENON_TABLE_NAME": "t", "TENON_LIMIT": "many"})


def test_variables_become_settings() -> None:
    environ = {"TENON_CLUSTER_NAME": "demo", "TENON_TABLE_NAME": "t", "TENON_LIMIT": "7", "PATH": "/bin"}
    assert read(Example, environ) == Example(cluster_name="demo", table_name="t", limit=7)
