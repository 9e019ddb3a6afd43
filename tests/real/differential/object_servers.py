"""Two API servers that are asked to create generated objects, without creating them."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from kubernetes.client.exceptions import ApiException

from local.kubernetes import kinds
from local.kubernetes.apiserver.api import Api
from local.kubernetes.apiserver.auth import ADMIN
from local.kubernetes.apiserver.http import Request
from local.kubernetes.registry.store import Store
from shared.api import crds
from tests.real.scheduling import START, until

if TYPE_CHECKING:
    from kubernetes.client.rest import RESTClientObject

    from tests.real.differential.generated_objects import Json
    from tests.real.differential.object_answers import Answer

_NAMESPACE = "default"
_NOT_SERVED = frozenset((404, 429))
_QUERY = {"dryRun": "All"}


class EmbeddedServer:
    """The embedded API server with Karpenter's definitions, or over another store."""

    def __init__(self, store: Store | None = None) -> None:
        self._store = store or Store(now=lambda: START)
        for definition in crds.load() if store is None else ():
            self._store.create(kinds.CUSTOM_RESOURCE_DEFINITIONS, definition)
        self._api = Api(self._store, authenticate=lambda _: ADMIN)
        self._paths = {(k.api_version, k.kind): _path(k) for k in self._store.served()}

    def ask(self, path: str, obj: Json) -> Answer:
        """The answer to a request to create the object that changes nothing."""
        headers = {"content-type": "application/json"}
        response = self._api.respond(Request("POST", path, _QUERY, headers, json.dumps(obj).encode()))
        return response.status, json.loads(response.body)

    def path_of(self, obj: Json) -> str:
        """The path to which the object is sent."""
        return self._paths[obj["apiVersion"], obj["kind"]]


def _path(kind: kinds.Kind) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/{_NAMESPACE}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


class RealServer:
    """A real API server, by its URL and an administrator's token."""

    def __init__(self, transport: RESTClientObject, url: str, token: str) -> None:
        self._transport = transport
        self._url = url
        self._headers = {
            "Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "application/json",
        }  # fmt: skip

    def prepare(self, definitions: list[Json]) -> None:
        """Create the definitions, and the service account that pods need; wait until the kinds are served."""
        self.ask(f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}}, {})
        for definition in definitions:
            self.ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition, {})
        for definition in definitions:
            spec = definition["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"
            until(functools.partial(self._is_served, path))

    def get(self, path: str) -> Json:
        """The object at a path."""
        return self._send("GET", path)[1]

    def _is_served(self, path: str) -> bool:
        return self._send("GET", path)[0] not in _NOT_SERVED

    def ask(self, path: str, obj: Json, query: dict[str, str] = _QUERY) -> Answer:
        """The answer to a request to create the object; it changes nothing unless the query says otherwise."""
        return self._send("POST", f"{path}?{urlencode(query)}", obj)

    def _send(self, method: str, path: str, body: Json | None = None) -> Answer:
        try:
            response = self._transport.request(method, f"{self._url}{path}", headers=self._headers, body=body)
            status, data = response.status, response.read()
        except ApiException as error:
            status, data = error.status, error.body
        try:
            answer: Json = json.loads(data)
        except ValueError:
            answer = {"message": str(data)}  # before a kind is served, the answer is a text
        return status, answer
