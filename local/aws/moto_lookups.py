"""Memories for what moto looks up again for each request, or each attribute of each answer.

They change no answer: a service's operations, and the names under which a model's attribute is looked for in moto's own
objects, depend on classes only.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

from moto.core import base_backend, responses, serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def replacements() -> list[tuple[object, str, object]]:
    """What to replace while a cloud is entered: owners, names and values."""
    from moto.sqs import models as sqs_models

    underscored = functools.cache(responses.camelcase_to_underscores)
    return [
        # moto inspects all members of a service's class for each request, which then takes longer than its own answer.
        # The caches are a cloud's own, because its replacements add operations.
        (responses, "method_names_from_class", functools.cache(responses.method_names_from_class)),
        (responses, "camelcase_to_underscores", underscored),
        (sqs_models, "camelcase_to_underscores", underscored),  # for all attributes of a queue, with each message
        (base_backend.BackendDict, "__getitem__", _account),
        *(
            (picker, "get_possible_keys", _by_classes(picker.__dict__["get_possible_keys"]))
            for picker in (serialize.AttributePicker, serialize.XFormedAttributePicker)
        ),
    ]


_create_account: Any = base_backend.BackendDict.__getitem__


def _account(backends: Any, account_id: str) -> Any:
    """A service's backends of an account; moto looks first whether it has to create them, under a lock."""
    existing = dict.get(backends, account_id)
    return _create_account(backends, account_id) if existing is None else existing


def _by_classes(possible_keys: Callable[[Any, Any], Iterable[str]]) -> Callable[[Any, Any], tuple[str, ...]]:
    """Look for keys once for each shape of an answer and class of moto's objects."""
    by_shape: weakref.WeakKeyDictionary[Any, dict[Any, tuple[str, ...]]] = weakref.WeakKeyDictionary()

    def get_possible_keys(picker: Any, context: Any) -> tuple[str, ...]:
        of_shape = by_shape.setdefault(context.shape, {})
        by = type(picker), type(context.obj), context.key
        known = of_shape.get(by)
        if known is None:
            known = of_shape[by] = tuple(possible_keys(picker, context))
        return known

    return get_possible_keys
