"""Every parser of input raises only its documented error, whatever it is given.

``python -m tests.fuzz --minutes 10`` tries longer.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.fuzz.inputs import POISON, inputs
from tests.fuzz.parsers import PARSERS, try_to_read


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_raises_only_its_own_error(name: str) -> None:
    parser = PARSERS[name]
    for text in (*parser.examples, *POISON):
        try_to_read(name, text)

    @given(text=inputs(parser.examples))
    @settings(max_examples=20, deadline=None)
    def holds(text: str) -> None:
        try_to_read(name, text)

    holds()


@pytest.mark.parametrize("name", PARSERS)
def test_a_parser_reads_its_examples(name: str) -> None:
    parser = PARSERS[name]
    for text in parser.examples:
        parser.read(text)
