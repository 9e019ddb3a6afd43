"""The text that a rule's target gets instead of the event."""

from __future__ import annotations

from typing import Any

import pytest

from local.aws.input_transformer import transformed

EVENT = {"source": 'a "b"', "detail-type": "Order Placed", "detail": {"order": {"id": 7}}}
PATHS = {"source": "$.source", "type": "$.detail-type", "id": "$.detail.order.id", "gone": "$.detail.no.such"}


@pytest.mark.parametrize(
    ("template", "result"),
    [
        ('{"from":<source>,"id":<id>}', {"from": 'a "b"', "id": 7}),
        ('"<type> <id> by <source>"', 'Order Placed 7 by a "b"'),
        ('{"<type>": "\\\\ <id>", "gone": <gone>}', {"Order Placed": "\\ 7", "gone": None}),
    ],
)
def test_placeholders_are_json_and_within_quotes_plain_text(template: str, result: Any) -> None:
    assert transformed({"InputPathsMap": PATHS, "InputTemplate": template}, EVENT) == result
