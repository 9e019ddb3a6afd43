"""The processor time of the local AWS, which functions don't spend on Lambda."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.aws.interceptor import Interceptor


def timed(answer: Callable[..., Any], spent: Callable[[float, str], None]) -> Callable[..., Any]:
    """Wraps a response of the local AWS (``Interceptor.__call__``).

    ``spent`` gets the processor seconds of each and the call, as ``ec2 CreateFleet``.
    """

    @functools.wraps(answer)
    def answered(gate: Interceptor, event_name: str, request: Any, **kwargs: object) -> Any:
        began = time.thread_time()
        try:
            return answer(gate, event_name, request, **kwargs)
        finally:
            _, service, operation = event_name.split(".")
            spent(time.thread_time() - began, f"{service.lower()} {operation}")

    return answered
