"""A recording of a real API server: every request with its response, and every state of every object, in order.

The requests come from the server's audit log, so those of its own components are among them. The states come from
etcd's history: each write has a revision, which is the object's resourceVersion. Both are complete, whoever wrote.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, urlsplit

import msgspec

from local.kubernetes.apiserver.auth import User
from shared.base.struct import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from local.kubernetes.objects import Obj
    from local.real.request_log import SentBody

_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "omitManagedFields": True,
    "rules": [{"level": "None", "nonResourceURLs": ["*"]}, {"level": "RequestResponse"}],
}
_POLICY_FILE, _LOG_FILE = "audit-policy.json", "audit.log"
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
_STRATEGIC = "application/strategic-merge-patch+json"
_APPLY = "application/apply-patch+yaml"
_DEFINITION = "CustomResourceDefinition"
_PREFIX = "/registry/"
_SECONDS_TO_READ = 30
_HTTP_OK = 200


class Exchange(Struct, kw_only=True):
    """A request and its response. ``response`` is empty where the log has no body, as for watches."""

    id: str
    user: User
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    is_exact: bool
    """Whether the body is the bytes that were sent; else it is the object as the server has decoded it."""
    verb: str
    resource: str
    """``plural.group``, or just the plural in the core group, and ``/subresource`` behind it if there is one."""
    status: int
    response: Obj
    received: datetime
    completed: datetime

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        return f"{self.method} {self.path}{'?' if query else ''}{query}"


class Revision(Struct):
    """One write to etcd: the object's new state, or its last one if it was removed."""

    number: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: Obj


class RecordedWatch(Struct):
    """A watch that a client ended, and its events: their types and objects."""

    path: str
    query: Mapping[str, str]
    events: list[tuple[str, Obj]]

    def __str__(self) -> str:
        return f"WATCH {self.path}?{'&'.join(f'{name}={value}' for name, value in self.query.items())}"


class Recording(Struct):
    """What an API server was asked and answered, oldest first, and what it stored."""

    exchanges: list[Exchange]
    revisions: list[Revision]
    watches: list[RecordedWatch] = []
    """Watches that a test has added; the log has none of their events."""


def api_server_flags(folder: Path) -> list[str]:
    """The flags of a kube-apiserver that can be recorded; writes the audit policy into the folder."""
    policy = folder / _POLICY_FILE
    policy.write_text(json.dumps(_AUDIT_POLICY))
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / _LOG_FILE}",
        # Otherwise built-in kinds are stored as protobuf, and the history loses its beginning after five minutes.
        "--storage-media-type=application/json",
        "--etcd-compaction-interval=0",
    ]


def read(folder: Path, sent: Mapping[str, SentBody]) -> Recording:
    """The recording of a control plane that runs with the flags of :func:`api_server_flags`.

    ``sent`` has the requests of this process by their audit ID. Of the others, the log has only the decoded body.
    """
    with (folder / _LOG_FILE).open("rb") as log:
        exchanges = [_exchange(event, sent) for line in log if (event := _event(line))]
    exchanges.sort(key=lambda exchange: exchange.received)
    return Recording(exchanges, list(_revisions(folder / "client.sock", _definitions(exchanges))))


def _event(line: bytes) -> Obj | None:
    """An audit event of a resource; None for a line that is being written."""
    try:
        event: Obj = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return None
    return event if "resource" in event.get("objectRef", {}) else None


def _exchange(event: Obj, sent: Mapping[str, SentBody]) -> Exchange:
    parts, ref, verb = urlsplit(event["requestURI"]), event["objectRef"], event["verb"]
    user = event.get("impersonatedUser") or event["user"]
    own = sent.get(event["auditID"])
    if own is not None:
        content_type, accept, body = own.content_type, own.accept, own.body
    else:
        content_type, accept = _content_type(event), ""
        body = msgspec.json.encode(event["requestObject"]) if "requestObject" in event else b""
    group, below = ref.get("apiGroup", ""), ref.get("subresource", "")
    return Exchange(
        id=event["auditID"],
        user=User(user["username"], tuple(user.get("groups") or ())),
        method=_METHODS.get(verb, "GET"),
        path=parts.path,
        query=dict(parse_qsl(parts.query, keep_blank_values=True)),
        headers={"content-type": content_type, "accept": accept},
        body=body,
        is_exact=own is not None,
        verb=verb,
        resource=ref["resource"] + (f".{group}" if group else "") + (f"/{below}" if below else ""),
        status=event["responseStatus"]["code"],
        response=event.get("responseObject") or {},
        received=datetime.fromisoformat(event["requestReceivedTimestamp"]),
        completed=datetime.fromisoformat(event["stageTimestamp"]),
    )


def _content_type(event: Obj) -> str:
    """The content type of a request of the server's own components, which the log doesn't have.

    Their patches are strategic, except server-side apply, which names a field manager and a whole object.
    """
    if event["verb"] != "patch":
        return "application/json"
    body = event.get("requestObject") or {}
    is_apply = "fieldManager=" in event["requestURI"] and isinstance(body, dict) and {"apiVersion", "kind"} <= set(body)
    return _APPLY if is_apply else _STRATEGIC


def _definitions(exchanges: Iterable[Exchange]) -> dict[int, Obj]:
    """The states of CustomResourceDefinitions in responses, by revision: etcd has them in an older version."""
    responses = [exchange.response for exchange in exchanges]
    return {int(obj["metadata"]["resourceVersion"]): obj for obj in responses if obj.get("kind") == _DEFINITION}


def _revisions(etcd: Path, definitions: Mapping[int, Obj]) -> Iterator[Revision]:
    """Every write so far, from etcd's first revision on."""
    states: dict[str, Obj] = {}
    for event in _history(etcd):
        key, number = _decoded(event["kv"]["key"]), int(event["kv"]["mod_revision"])
        before = states.get(key)
        if event.get("type") == "DELETE":
            if before is not None:
                yield Revision(number, "DELETED", _with_version(states.pop(key), number))
            continue
        obj = msgspec.json.decode(base64.b64decode(event["kv"]["value"]))
        if "name" not in obj.get("metadata", {}):
            continue  # the allocations of addresses and ports aren't objects
        if obj["kind"] == _DEFINITION:
            obj = definitions.get(number, before or obj)
        states[key] = obj = _with_version(obj, number)
        yield Revision(number, "ADDED" if before is None else "MODIFIED", obj)


def _with_version(obj: Obj, number: int) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(number)}}


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()


def _history(etcd: Path) -> Iterator[dict[str, Any]]:
    """The events of a watch from the first revision to the present one, by etcd's HTTP gateway."""
    connection = _SocketConnection(etcd)
    watch = {
        "key": base64.b64encode(_PREFIX.encode()).decode(),
        "range_end": base64.b64encode((_PREFIX[:-1] + chr(ord("/") + 1)).encode()).decode(),
        "start_revision": 1,
    }
    try:
        connection.request("POST", "/v3/watch", json.dumps({"create_request": watch}))
        response = connection.getresponse()
        if response.status != _HTTP_OK:
            raise ConnectionError(f"etcd answered {response.status}: {response.read(1000)!r}")
        last = int(json.loads(response.readline())["result"]["header"]["revision"])
        seen = 0
        while seen < last:
            events = json.loads(response.readline())["result"].get("events", ())
            yield from events
            seen = int(events[-1]["kv"]["mod_revision"]) if events else seen
    finally:
        connection.close()


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_SECONDS_TO_READ)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
