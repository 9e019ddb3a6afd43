"""The ledger of shadow mode: what each fleet cost on a day, and for how long no price was known."""

from __future__ import annotations

from decimal import Decimal

from shared.shadow.ledger import UNPRICED, Day, Offering, Usage

OFFERING = Offering(instance_type="m5.large", zone="us-east-1a", capacity_type="on-demand")


def test_each_fleet_has_its_own_dollars_hours_and_time_without_a_price() -> None:
    day = Day(
        date="2026-11-21",
        usage=[
            Usage(fleet="real", offering=OFFERING, price="0.1", seconds=3 * 3600),
            Usage(fleet="real", offering=OFFERING, price=UNPRICED, seconds=600),
            Usage(fleet="shadow", offering=OFFERING, price="0.1", seconds=3600),
        ],
    )
    assert (day.dollars("real"), day.dollars("shadow")) == (Decimal("0.30"), Decimal("0.10"))
    assert (day.hours("real"), day.hours("shadow")) == (3 + 1 / 6, 1)
    assert (day.unpriced_seconds("real"), day.unpriced_seconds("shadow")) == (600, 0)
