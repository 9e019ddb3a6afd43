"""What a NodePool's annotation asks for, and the states of a NodeClaim that is kept on standby."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from shared.api import labels as names
from shared.api import nodeclaim
from shared.api.meta import ObjectMeta, with_condition
from shared.api.nodeclaim import NodeClaim, NodeClaimStatus
from shared.api.nodepool import NodeClaimTemplate, NodePool, NodePoolSpec, TemplateMetadata
from shared.api.standby import (
    STARTED,
    STARTING,
    STOPPED,
    WARMING,
    WantedStandbys,
    awaits_start,
    is_held,
    standby_state,
    wanted_standbys,
    was_standby,
    with_annotations,
)
from shared.base.struct import with_fields

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def pool(text: str | None, *, deleted: bool = False) -> NodePool:
    annotations = {} if text is None else {names.STANDBY: text}
    return NodePool(metadata=ObjectMeta(name="p", annotations=annotations, deletion_timestamp=NOW if deleted else None))


def claim(state: str, reason: str = "Launched") -> NodeClaim:
    conditions = with_condition([], nodeclaim.LAUNCHED, status=True, reason=reason, now=NOW, generation=1)
    return NodeClaim(
        metadata=ObjectMeta(name="c", annotations={names.STANDBY: state, "other": "kept"}),
        status=NodeClaimStatus(conditions=conditions),
    )


def test_the_templates_annotation_counts_unless_the_nodepool_has_its_own() -> None:
    template = NodeClaimTemplate(metadata=TemplateMetadata(annotations={names.STANDBY: "3"}))
    of_template = NodePool(metadata=ObjectMeta(name="p"), spec=NodePoolSpec(template=template))
    assert wanted_standbys(of_template).count == 3
    own = with_fields(of_template, metadata=ObjectMeta(name="p", annotations={names.STANDBY: "1"}))
    assert wanted_standbys(own).count == 1


@pytest.mark.parametrize(
    ("text", "count", "instance_type"),
    [
        (None, 0, ""),
        ("", 0, ""),
        ("0", 0, ""),
        ("3", 3, ""),
        (" 3  m7i.xlarge ", 3, "m7i.xlarge"),
        ("100 u-6tb1.112xlarge", 100, "u-6tb1.112xlarge"),
    ],
)
def test_the_annotation_is_a_number_and_perhaps_a_type(text: str | None, count: int, instance_type: str) -> None:
    assert wanted_standbys(pool(text)) == WantedStandbys(count=count, instance_type=instance_type)


@pytest.mark.parametrize("text", ["three", "-1", "1.5", "3 large", "101", "99999", "3 m5.large extra", "3m5.large"])
def test_anything_else_is_an_error_that_quotes_it(text: str) -> None:
    wanted = wanted_standbys(pool(text))
    assert wanted.count == 0
    assert text.split(maxsplit=1)[0] in wanted.error


def test_a_nodepool_that_is_being_deleted_wants_none() -> None:
    assert wanted_standbys(pool("3", deleted=True)) == WantedStandbys()


def test_the_states() -> None:
    # The value of a template's annotation is copied to NodeClaims, and is no state.
    assert [standby_state(claim(s)) for s in (WARMING, STOPPED, STARTING, "3")] == [WARMING, STOPPED, STARTING, ""]
    assert [is_held(claim(s)) for s in (WARMING, STOPPED, STARTING, "3")] == [True, True, False, False]
    assert [awaits_start(claim(s)) for s in (WARMING, STOPPED, STARTING, "3")] == [False, False, True, False]
    assert not awaits_start(claim(STARTING, reason=STARTED))
    assert [was_standby(claim("", reason=r)) for r in ("Launched", STARTED)] == [False, True]


def test_a_change_of_state_needs_the_state_that_it_follows_from() -> None:
    stopped = claim(STOPPED)
    started = with_annotations(stopped, {names.STANDBY: STARTING, "pods": "a"}, expected=STOPPED)
    assert started.metadata.annotations == {names.STANDBY: STARTING, "pods": "a", "other": "kept"}
    assert with_annotations(started, {names.STANDBY: WARMING}, expected=STOPPED) is started
    plain = with_annotations(started, {names.STANDBY: None, "pods": None}, expected=STARTING)
    assert plain.metadata.annotations == {"other": "kept"}
