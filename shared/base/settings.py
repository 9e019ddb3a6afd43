"""Environment variables as one validated model per function.

Each function declares the settings it needs by a subclass of :class:`Settings` in its own ``settings.py``; the stack
sets exactly those variables (a test compares both). A field ``table_name`` is read from ``TENON_TABLE_NAME``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import msgspec

from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "TENON_"


class SettingsError(RuntimeError):
    """A required environment variable is missing or malformed; the message names it."""


class Settings(WireStruct, kw_only=True):
    """The settings of every function."""

    cluster_name: str


class CommitmentSettings(Settings, frozen=True, kw_only=True):
    """The settings of functions that compare prices.

    ``commitments``: whether Savings Plans and Reserved Instances count; they are stored in the catalog's bucket.
    ``commitment_share`` is the part of the account's commitments that the cluster may use, 0 to 1 (None: by its part of
    the running instances).
    """

    commitments: Literal["on", "off"] = "off"
    commitment_share: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class LaunchSettings(CommitmentSettings, frozen=True, kw_only=True):
    """What instances are launched with: the bucket holds the catalog, the table keeps unavailable offerings."""

    table_name: str
    catalog_bucket: str
    node_instance_profile: str


class ProvisioningSettings(LaunchSettings, frozen=True, kw_only=True):
    """The settings of functions that provision.

    The event bus takes requests for a catalog.
    ``planned_pods``: whether pods are nominated for the nodes that are planned for them. ``standby``: whether instances
    may be stopped and started, so that NodePools can have standby nodes. ``node_groups``: whether node groups are
    scaled.
    """

    event_bus_name: str
    planned_pods: Literal["nominated", "off"] = "nominated"
    standby: Literal["on", "off"] = "off"
    node_groups: Literal["on", "off"] = "off"


S = TypeVar("S", bound=Settings)


def variable(field: str) -> str:
    """The environment variable of a field."""
    return PREFIX + field.upper()


def read(kind: type[S], environ: Mapping[str, str]) -> S:
    """The settings from the environment.

    Raises:
        SettingsError: a required variable is missing or can't be converted.
    """
    fields = msgspec.structs.fields(kind)
    missing = [variable(f.name) for f in fields if f.required and not environ.get(variable(f.name))]
    if missing:
        raise SettingsError(f"missing environment variable {', '.join(missing)}: the stack must set it on the function")
    values = {f.name: environ[variable(f.name)] for f in fields if environ.get(variable(f.name))}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(f"malformed environment variable: {error}") from error
