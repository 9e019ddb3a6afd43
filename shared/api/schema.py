"""What the CustomResourceDefinitions say of a field, written beside the field.

:func:`describe` goes into a field's ``Annotated``; ``shared.api.crds`` turns the structs into OpenAPI from it. msgspec
itself doesn't check these rules: a bad value must reach ``shared.api.validation``, which tells all problems at once.
"""

from __future__ import annotations

from typing import Any

import msgspec

Rule = tuple[str, str]
"""A CEL expression and the message when it doesn't hold."""

LABEL_KEY = {
    "maxLength": 316,
    "pattern": (
        r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
        r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
    ),
}
LABEL_VALUE = {"maxLength": 63, "pattern": r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}
DURATION = r"^([0-9]+(s|m|h))+$"
DURATION_OR_NEVER = r"^(([0-9]+(s|m|h))+|Never)$"


def describe(
    text: str,
    *,
    required: bool = False,
    default: bool = False,
    internal: bool = False,
    each: dict[str, Any] | None = None,
    rules: tuple[Rule, ...] = (),
    **schema: object,
) -> msgspec.Meta:
    """A field's description and rules; keywords beyond those named are OpenAPI's own (``maxItems=100``).

    ``required``: the API server refuses objects without it. ``default``: the API server fills in the struct's default.
    ``internal``: not part of the API. ``each``: the schema of a list's items or a map's values. ``rules``: CEL.
    """
    extra = {"required": required, "default": default, "internal": internal, "each": each or {}, "rules": rules}
    return msgspec.Meta(description=text, extra_json_schema=dict(schema), extra=extra)
