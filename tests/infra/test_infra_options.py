"""The table of options: what it says in words is what its rules allow."""

from __future__ import annotations

import dataclasses
import re

import pytest

from docs.markdown import field_docstrings
from infra.options.rules import Option, OptionError
from infra.options.stack_options import OPTIONS, StackOptions

MEANINGS = field_docstrings(StackOptions)
WORDS = re.compile(r"must be ([\w-]+(?: or [\w-]+)+)$")


def test_every_field_but_the_cluster_has_a_context_key() -> None:
    fields = [field.name for field in dataclasses.fields(StackOptions)]
    assert fields == ["cluster", *OPTIONS]
    assert len({option.key for option in OPTIONS.values()}) == len(OPTIONS)


@pytest.mark.parametrize(("name", "option"), OPTIONS.items())
def test_the_meaning_of_an_option_names_its_default_and_every_allowed_word(name: str, option: Option) -> None:
    default = option.rule.written(option.rule.default)
    named = {*re.findall(r"`(?:\w+=)?([\w-]+)`|default: (\d+)", MEANINGS[name])}
    words = {word for pair in named for word in pair if word}
    if default and default != []:
        assert str(default) in words
    assert _allowed_words(option) <= words


@pytest.mark.parametrize(("name", "option"), [item for item in OPTIONS.items() if type(item[1].rule.default) is int])
def test_a_number_is_accepted_from_its_least_to_its_most(name: str, option: Option) -> None:
    with pytest.raises(OptionError) as error:
        option.rule.read("many", "-c key")
    least, most = map(int, re.findall(r"\d+", str(error.value)))
    assert least <= option.rule.default <= most
    assert [option.rule.read(str(number), "-c key") for number in (least, most)] == [least, most]
    for number in (least - 1, most + 1):
        with pytest.raises(OptionError):
            option.rule.read(number, "-c key")
    said = re.search(r"(\d+) to (\d+)", MEANINGS[name])
    assert said is None or (int(said[1]), int(said[2])) == (least, most)


def _allowed_words(option: Option) -> set[str]:
    """The words of an option that takes no other values."""
    try:
        option.rule.read("no such word", "-c key")
    except OptionError as error:
        allowed = WORDS.search(str(error))
        return {*allowed[1].split(" or ")} if allowed else set()
    return set()
