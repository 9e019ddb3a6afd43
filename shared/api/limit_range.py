"""LimitRanges, reduced to the defaults that they give to containers."""

from __future__ import annotations

from shared.api.meta import ApiStruct, ObjectMeta, RawQuantities


class LimitRangeItem(ApiStruct):
    """The bounds and defaults of one type of object: Container, Pod or PersistentVolumeClaim."""

    type: str = ""
    default: RawQuantities = {}
    default_request: RawQuantities = {}
    max: RawQuantities = {}
    min: RawQuantities = {}


class LimitRangeSpec(ApiStruct):
    """The bounds and defaults of a namespace."""

    limits: list[LimitRangeItem] = []


class LimitRange(ApiStruct):
    """A LimitRange: containers of its namespace that state no requests or limits get its defaults."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()
    kind: str = "LimitRange"
    api_version: str = "v1"
