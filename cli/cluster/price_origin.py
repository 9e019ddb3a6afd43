"""Where the prices of a command come from, and how figures that aren't AWS's are marked.

Without AWS, a cluster that is read from files has the local world's prices, which are made up. Whatever depends on them
says so, because a reader takes USD for USD.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from shared.base.struct import Struct

if TYPE_CHECKING:
    from shared.instance_types.catalog import InstanceTypeCatalog


OriginName = Literal["aws", "kept", "estimated", "files", "made-up"]
"""AWS's prices, AWS's of an earlier day, estimates by size, those that a file lists, or the local world's."""


class PriceOrigin(Struct, kw_only=True):
    """``name`` is the origin in JSON; ``caveat`` marks an amount, ``note`` is the sentence on it; both "" for AWS's."""

    name: OriginName
    caveat: str = ""
    note: str = ""

    def marked(self, text: str) -> str:
        """The text of an amount, with what the reader must know of it.

        >>> MADE_UP.marked("$0.08/h")
        '$0.08/h (made-up prices)'
        >>> AWS.marked("$0.08/h")
        '$0.08/h'
        """
        return f"{text} ({self.caveat})" if self.caveat else text


AWS = PriceOrigin(name="aws")
FILES = PriceOrigin(name="files")
KEPT = PriceOrigin(name="kept", note="on-demand prices are earlier ones: AWS's price list couldn't be read")
ESTIMATED = PriceOrigin(
    name="estimated",
    caveat="estimated on-demand prices",
    note="on-demand prices are estimates by size, because AWS's price list couldn't be read",
)
MADE_UP = PriceOrigin(
    name="made-up",
    caveat="made-up prices",
    note="prices are made up: spot prices are random shares of on-demand prices, some of which are estimates; no "
    "amount of dollars here is your cluster's",
)
_OF_SOURCE = {"aws": AWS, "kept": KEPT, "embedded": ESTIMATED}


def of_account(catalog: InstanceTypeCatalog) -> PriceOrigin:
    """The origin of the prices in a catalog that was read from AWS."""
    return _OF_SOURCE[catalog.price_source]
