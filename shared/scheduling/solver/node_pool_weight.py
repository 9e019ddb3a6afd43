"""NodePool weight: pods go to NodePools of the greatest weight first, of the next only where these can't run them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from shared.scheduling.solver.bins import Bin
    from shared.scheduling.state.launch_options import LaunchOptions

    Bools = NDArray[np.bool_]


class NodePoolWeights:
    """The weights of launch options."""

    def __init__(self, launch_options: LaunchOptions) -> None:
        by_template = np.array([t.weight for t in launch_options.templates], np.int64)
        self._by_option = by_template[launch_options.template_of]
        self._weights = sorted(set(by_template.tolist()), reverse=True)

    def options_by_weight(self) -> Iterator[Bools]:
        """The launch options of each weight, greatest weight first."""
        for weight in self._weights:
            yield self._by_option == weight

    def of(self, bin_: Bin) -> int:
        """The weight of a bin's NodePool."""
        return int(self._by_option[bin_.option])
