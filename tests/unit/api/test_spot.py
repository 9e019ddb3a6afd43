"""What a NodePool's annotations ask of spot capacity; invalid values have the default and a sentence."""

from __future__ import annotations

import pytest

from shared.api import labels as names
from shared.api.meta import ObjectMeta
from shared.api.nodepool import NodePool
from shared.api.spot import DEFAULT, SpotOptions, read_spot_options, spot_options


def pool(**annotations: str) -> NodePool:
    full = {f"tenon.sh/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return NodePool(metadata=ObjectMeta(name="p", annotations=full))


def test_without_annotations_the_options_are_the_default() -> None:
    assert spot_options(pool()) is DEFAULT
    assert spot_options(pool(paused="true")) is DEFAULT


def test_each_annotation_sets_an_option() -> None:
    chosen = pool(spot_diversity="5", spot_allocation_strategy="capacity-optimized", max_spot_price_share="0.8")
    expected = SpotOptions(diversity=5, allocation_strategy="capacity-optimized", max_price_share=0.8)
    assert read_spot_options(chosen) == (expected, ())


@pytest.mark.parametrize("text", ["0", "61", "-1", "five", "2.5", "99999", "٣"])
def test_an_invalid_diversity_is_the_default_and_is_named(text: str) -> None:
    options, (problem,) = read_spot_options(pool(spot_diversity=text, max_spot_price_share="0.5"))
    assert options == SpotOptions(max_price_share=0.5)
    assert problem.startswith(f'annotation {names.SPOT_DIVERSITY}: "{text}" must be a number from 1 to 60')


@pytest.mark.parametrize("text", ["0", "1.2", "80%", "nan", "-0.5", ".", "0,8"])
def test_an_invalid_price_share_is_the_default_and_is_named(text: str) -> None:
    options, (problem,) = read_spot_options(pool(max_spot_price_share=text))
    assert options == DEFAULT
    assert f'{names.MAX_SPOT_PRICE_SHARE}: "{text}"' in problem


def test_every_invalid_annotation_is_named() -> None:
    invalid = pool(spot_diversity="x", spot_allocation_strategy="lowest-price", max_spot_price_share="x")
    options, problems = read_spot_options(invalid)
    assert options == DEFAULT
    assert [p.partition(":")[0] for p in problems] == [
        f"annotation {names.SPOT_DIVERSITY}",
        f"annotation {names.SPOT_ALLOCATION_STRATEGY}",
        f"annotation {names.MAX_SPOT_PRICE_SHARE}",
    ]
    assert "price-capacity-optimized or capacity-optimized" in problems[1]
