"""ARC's zonal shifts, which moto lacks: managed resources, shifts that users start, and autoshifts that AWS starts.

As ARC does, it knows only registered resources, takes one shift of a user at a time, names zones by their ids, and ends
a shift at its expiry. A user's shift takes precedence over an autoshift, which is then not applied.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from local.aws import backends
from local.aws.interceptor import json_error
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.interceptor import RawResponse

ACTIVE, EXPIRED, CANCELED = "ACTIVE", "EXPIRED", "CANCELED"
_MOST = timedelta(hours=72)
_EXPIRES_IN = re.compile(r"([1-9]\d*)([mh])")
_MOST_TEXT = 5
_JSON = {"content-type": "application/json"}


class ZonalShift(MutableStruct, kw_only=True):
    """A shift that a user started; ``zone`` is a zone id."""

    id: str
    resource: str
    zone: str
    start: datetime
    expiry: datetime
    comment: str
    status: str = ACTIVE


class Autoshift(MutableStruct, kw_only=True):
    """A shift that AWS started, and ends; ``zone`` is a zone id."""

    zone: str
    start: datetime


class ZonalShifts:
    """The managed resources of the account, and their shifts."""

    def __init__(self, *, region: str, now: Callable[[], datetime]) -> None:
        self._region = region
        self._now = now
        self.resources: set[str] = set()
        """The ARNs of the registered resources: clusters whose zonal shift is enabled."""
        self.shifts: list[ZonalShift] = []
        self.autoshifts: list[Autoshift] = []

    def zone_names(self) -> dict[str, str]:
        """The Region's zones by id."""
        return {z.zone_id: z.name for z in backends.ec2(self._region).describe_availability_zones()}

    def autoshift(self, zone: str) -> None:
        """AWS shifts traffic away from a zone (by name), until :meth:`end_autoshifts`."""
        ids = {name: zone_id for zone_id, name in self.zone_names().items()}
        self.autoshifts.append(Autoshift(zone=ids[zone], start=self._now()))

    def end_autoshifts(self) -> None:
        """AWS ends its shifts."""
        self.autoshifts.clear()

    def shifted_away(self) -> frozenset[str]:
        """The names of the zones that traffic of the registered resources is shifted away from now."""
        if not (self.shifts or self.autoshifts):
            return frozenset()
        names = self.zone_names()
        active = [s.zone for s in self._active() if s.resource in self.resources]
        return frozenset(names[zone] for zone in active or (a.zone for a in self.autoshifts if self.resources))

    def next_expiry(self) -> datetime | None:
        """When the next shift ends by itself."""
        return min((shift.expiry for shift in self._active()), default=None)

    def serve(self, operation: str, path: str, body: bytes) -> RawResponse:
        """ARC's response to an operation; an error for those that nothing here calls."""
        request = json.loads(body or b"{}")
        name = unquote(path.rpartition("/")[2])
        match operation:
            case "GetManagedResource":
                return self._get_managed_resource(unquote(path.partition("/managedresources/")[2]))
            case "StartZonalShift":
                return self._start(request)
            case "UpdateZonalShift":
                return self._update(name, request)
            case "CancelZonalShift":
                return self._cancel(name)
        return _invalid("InvalidStatus", f"{operation} is not supported here")

    def _active(self) -> list[ZonalShift]:
        for shift in self.shifts:
            if shift.status == ACTIVE and shift.expiry <= self._now():
                shift.status = EXPIRED
        return [shift for shift in self.shifts if shift.status == ACTIVE]

    def _get_managed_resource(self, arn: str) -> RawResponse:
        if arn not in self.resources:
            return json_error(404, "ResourceNotFoundException", f"no managed resource {arn}")
        active = [shift for shift in self._active() if shift.resource == arn]
        away = {s.zone for s in active} or {a.zone for a in self.autoshifts}
        autoshifts = [
            {
                "appliedStatus": "NOT_APPLIED" if active else "APPLIED",
                "awayFrom": autoshift.zone,
                "startTime": autoshift.start.timestamp(),
            }
            for autoshift in self.autoshifts
        ]
        answer = {
            "arn": arn,
            "name": arn.rpartition("/")[2],
            "appliedWeights": {zone: 0.0 if zone in away else 1.0 for zone in sorted(self.zone_names())},
            "zonalShifts": [_in_resource(shift) for shift in active],
            "autoshifts": autoshifts,
            "zonalAutoshiftStatus": "ENABLED",
        }
        return 200, _JSON, json.dumps(answer).encode()

    def _start(self, request: Mapping[str, Any]) -> RawResponse:
        arn, zone = request["resourceIdentifier"], request["awayFrom"]
        duration = _duration(request["expiresIn"])
        if arn not in self.resources:
            return json_error(404, "ResourceNotFoundException", f"no managed resource {arn}")
        if zone not in self.zone_names():
            return _invalid("InvalidAz", f"{zone} is not the id of a zone of {self._region}")
        if duration is None:
            return _invalid("InvalidExpiresIn", f"{request['expiresIn']} is not minutes or hours, at most three days")
        if any(shift.resource == arn for shift in self._active()):
            return _error(409, "ConflictException", "ZonalShiftAlreadyExists", "the resource has a shift already")
        now = self._now()
        shift = ZonalShift(
            id=f"{len(self.shifts) + 1:08x}-0000-4000-8000-000000000000",
            resource=arn,
            zone=zone,
            start=now,
            expiry=now + duration,
            comment=request["comment"],
        )
        self.shifts.append(shift)
        return 201, _JSON, json.dumps(_described(shift)).encode()

    def _update(self, id_: str, request: Mapping[str, Any]) -> RawResponse:
        shift = next((s for s in self._active() if s.id == id_), None)
        duration = _duration(request.get("expiresIn", "1m"))
        if shift is None:
            return json_error(404, "ResourceNotFoundException", f"no active shift {id_}")
        if duration is None:
            return _invalid("InvalidExpiresIn", f"{request['expiresIn']} is not minutes or hours, at most three days")
        if "expiresIn" in request:
            shift.expiry = self._now() + duration
        return 200, _JSON, json.dumps(_described(shift)).encode()

    def _cancel(self, id_: str) -> RawResponse:
        shift = next((s for s in self.shifts if s.id == id_), None)
        if shift is None:
            return json_error(404, "ResourceNotFoundException", f"no shift {id_}")
        if shift not in self._active():
            return _error(409, "ConflictException", "ZonalShiftStatusNotActive", f"the shift is {shift.status}")
        shift.status = CANCELED
        return 200, _JSON, json.dumps(_described(shift)).encode()


def _described(shift: ZonalShift) -> dict[str, Any]:
    return {
        "zonalShiftId": shift.id,
        "resourceIdentifier": shift.resource,
        "awayFrom": shift.zone,
        "expiryTime": shift.expiry.astimezone(UTC).timestamp(),
        "startTime": shift.start.astimezone(UTC).timestamp(),
        "status": shift.status,
        "comment": shift.comment,
    }


def _in_resource(shift: ZonalShift) -> dict[str, Any]:
    described = {name: value for name, value in _described(shift).items() if name != "status"}
    return {**described, "appliedStatus": "APPLIED", "shiftType": "ZONAL_SHIFT"}


def _duration(text: str) -> timedelta | None:
    """The duration of ``expiresIn``; None if ARC refuses it."""
    matched = _EXPIRES_IN.fullmatch(text)
    if matched is None or len(text) > _MOST_TEXT:
        return None
    duration = timedelta(**{"minutes" if matched[2] == "m" else "hours": int(matched[1])})
    return duration if duration <= _MOST else None


def _invalid(reason: str, message: str) -> RawResponse:
    return _error(400, "ValidationException", reason, message)


def _error(status: int, code: str, reason: str, message: str) -> RawResponse:
    body = {"__type": code, "message": message, "reason": reason}
    return status, {"x-amzn-errortype": code}, json.dumps(body).encode()
