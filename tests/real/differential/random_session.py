"""Sends random requests to a real API server that has no controllers, so that nothing but the requests changes it."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject

from local.real import binary
from local.real.control_plane import ControlPlane
from local.real.recording import RecordedWatch
from local.real.request_log import RequestLog
from shared.api import crds
from shared.base.struct import with_fields
from tests.real.differential.random_custom_objects import CUSTOM_KINDS, WIDGETS
from tests.real.differential.random_objects import BUILT_IN_KINDS, NAMESPACE, POD
from tests.real.differential.random_requests import RandomRequest, RandomRequests

if TYPE_CHECKING:
    from collections.abc import Iterable

    from local.real.recording import Recording
    from tests.real.differential.random_objects import Json

WATCHED: tuple[dict[str, str], ...] = ({}, {"labelSelector": "app=web"}, {"fieldSelector": "metadata.name=a"})
"""The selectors of watches."""
_SECONDS_TO_SERVE = 30
_NOT_FOUND = 404
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def recorded(seeds: Iterable[int], requests_each: int, *, kubernetes: str = binary.EMBEDDED) -> Recording:
    """The recording of a server that was sent that many random requests for each seed, one after the other."""
    log = RequestLog(with_bodies=True)
    with ControlPlane(kubernetes=kubernetes, components=(), recorded=True) as control_plane, log.recorded():
        client = control_plane.client()
        transport = RESTClientObject(client._configuration)
        session = _Session(transport, control_plane.url, control_plane.admin_token)
        try:
            session.prepare()
            for seed in seeds:
                requests = RandomRequests(seed)
                for _ in range(requests_each):
                    request = requests.following()
                    requests.observe(request, session.send(request))
            watches = session.watches()
            recording = control_plane.recording(log.bodies)
            return with_fields(recording, watches=watches)
        finally:
            client.close()
            transport.pool_manager.clear()


class _Session:
    def __init__(self, transport: RESTClientObject, url: str, token: str) -> None:
        self._transport = transport
        self._url = url
        self._token = token
        self.first_version = ""

    def send(self, request: RandomRequest) -> Json:
        """The answer's body, also that of an error."""
        headers = {"Authorization": f"Bearer {self._token}", "Accept": request.accept}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        url = f"{self._url}{request.path}{'?' if request.query else ''}{urlencode(request.query)}"
        try:
            # The client encodes what it knows to be JSON.
            body = request.body if "json" in request.content_type else json.dumps(request.body)
            response = self._transport.request(request.method, url, headers=headers, body=body)
            data: Any = response.read()
        except ApiException as error:
            data = error.body
        try:
            answer: Json = json.loads(data)
        except ValueError:
            return {}
        return answer

    def watches(self) -> list[RecordedWatch]:
        """The events of each kind since the requests began, with several selectors. All watches run at once."""
        watched = [
            (path, {**selector, "resourceVersion": self.first_version, "watch": "1", "timeoutSeconds": "3"})
            for path in sorted({kind.collection() for kind in (*BUILT_IN_KINDS, *CUSTOM_KINDS)})
            for selector in WATCHED
        ]
        with ThreadPoolExecutor(len(watched)) as pool:
            return list(pool.map(lambda watch: self._watch(*watch), watched))

    def _watch(self, path: str, query: dict[str, str]) -> RecordedWatch:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        response = self._transport.request("GET", f"{self._url}{path}?{urlencode(query)}", headers=headers)
        lines = [json.loads(line) for line in response.read().splitlines()]
        return RecordedWatch(path, query, [(line["type"], line["object"]) for line in lines])

    def prepare(self) -> None:
        """Create what the requests need: a namespace with its service account, and the custom kinds."""
        self._create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        self._create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
        definitions = [*crds.load(), WIDGETS]
        for definition in definitions:
            self._create(_DEFINITIONS, definition)
        end = time.monotonic() + _SECONDS_TO_SERVE
        for definition in definitions:
            spec = definition["spec"]
            path = f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"
            while self.send(RandomRequest("GET", path)).get("kind") == "Status":
                if time.monotonic() > end:
                    raise TimeoutError(f"{path} is not served")
                time.sleep(0.05)
        self.first_version = self.send(RandomRequest("GET", POD.collection()))["metadata"]["resourceVersion"]

    def _create(self, path: str, obj: Json) -> None:
        answer = self.send(RandomRequest("POST", path, {}, obj))
        if answer.get("kind") == "Status":
            raise RuntimeError(answer["message"])
