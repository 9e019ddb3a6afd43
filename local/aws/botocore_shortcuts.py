"""What botocore needn't do for a cloud that is in the same process.

Nothing here checks a signature, reads a user agent or opens a connection. An answer that was parsed isn't parsed again,
and what clients are made of (their classes, the rules for endpoints, the names of events) is made once per process.
What a caller of boto3 sees is the same.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import pickle
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from boto3.session import Session
from botocore import regions
from botocore.auth import SigV4Auth
from botocore.client import ClientCreator
from botocore.endpoint import Endpoint
from botocore.endpoint_provider import EndpointProvider
from botocore.hooks import EventAliaser
from botocore.httpsession import URLLib3Session, create_urllib3_context
from botocore.parsers import QueryParser
from botocore.useragent import UserAgentString
from botocore.utils import lowercase_dict

if TYPE_CHECKING:
    import ssl
    from collections.abc import Hashable, Iterable, Mapping

_SIGNATURE = "0" * 64
_USER_AGENT = "Boto3"
_FIRST_ERROR_STATUS = 300
_MAX_PARSED = 512
"""How many answers are kept: the pages of a day's spot prices, which are the longest, and some hundred others."""
_MAX_PROVIDERS = 64


def replacements() -> list[tuple[object, str, object]]:
    """What to replace while a cloud is entered: owners, names and values."""
    return [
        (SigV4Auth, "canonical_request", lambda _auth, _request: ""),
        (SigV4Auth, "string_to_sign", lambda _auth, _request, _canonical_request: ""),
        (SigV4Auth, "signature", lambda _auth, _string_to_sign, _request: _SIGNATURE),
        (UserAgentString, "to_string", lambda _user_agent: _USER_AGENT),
        (QueryParser, "parse", _parse),
        (ClientCreator, "_create_client_class", _client_class),
        (regions, "EndpointProvider", _endpoint_provider),
        (Endpoint, "_update_retries_context", _count_attempt),
        (EventAliaser, "__init__", _make_event_aliaser),
        (URLLib3Session, "_get_ssl_context", lambda _session: _ssl_context()),
        (Session, "get_available_partitions", lambda _session: list(_partitions())),
    ]


@functools.cache
def _partitions() -> tuple[str, ...]:
    return tuple(_read_partitions(Session()))


_read_partitions = Session.get_available_partitions
_make_client_class: Any = ClientCreator.__dict__["_create_client_class"]
_client_classes: dict[tuple[str, str], type] = {}
_endpoint_providers: dict[tuple[int, int], tuple[object, EndpointProvider]] = {}


_call_numbers = itertools.count(1)
_update_attempt: Any = Endpoint.__dict__["_update_retries_context"]
_make_aliaser: Any = EventAliaser.__init__
_alias_names: dict[str, str] = {}


def _count_attempt(endpoint: Endpoint, context: dict[str, Any], *args: object) -> None:
    """Number the calls, instead of reading random bytes for an id of each."""
    context.setdefault("retries", {}).setdefault("invocation-id", f"{next(_call_numbers):032x}")
    _update_attempt(endpoint, context, *args)


def _make_event_aliaser(aliaser: EventAliaser, emitter: object, event_aliases: object = None, **rest: object) -> None:
    """Share the names of events that were looked up: those of a session's hundreds of handlers are the same."""
    _make_aliaser(aliaser, emitter, event_aliases, **rest)
    if event_aliases is None:
        aliaser._alias_name_cache = _alias_names  # type: ignore[attr-defined]  # noqa: SLF001 - the same


@functools.cache
def _ssl_context() -> ssl.SSLContext:
    context: ssl.SSLContext = create_urllib3_context()
    return context


def _client_class(creator: Any, service_name: str, service_model: Any) -> type:
    key = service_name, service_model.api_version
    if key not in _client_classes:
        _client_classes[key] = _make_client_class(creator, service_name, service_model)
    return _client_classes[key]


def _endpoint_provider(
    ruleset_data: Mapping[str, Any], partition_data: Mapping[str, Any], excluded_params: Iterable[str] | None = None
) -> EndpointProvider:
    """The provider of these rules, which a loader reads once; they are kept, so that no others get their identity."""
    key = id(ruleset_data), id(partition_data)
    if key not in _endpoint_providers:
        if len(_endpoint_providers) >= _MAX_PROVIDERS:
            _endpoint_providers.clear()
        provider = EndpointProvider(
            ruleset_data=ruleset_data, partition_data=partition_data, excluded_params=excluded_params
        )
        _endpoint_providers[key] = (ruleset_data, partition_data), provider
    return _endpoint_providers[key][1]


class _ParsedAnswers:
    """The most recent parsed answers, pickled: a caller may change what it gets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pickled: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, key: Hashable) -> bytes | None:
        with self._lock:
            pickled = self._pickled.get(key)
            if pickled is not None:
                self._pickled.move_to_end(key)
            return pickled

    def put(self, key: Hashable, pickled: bytes) -> None:
        with self._lock:
            self._pickled[key] = pickled
            if len(self._pickled) > _MAX_PARSED:
                self._pickled.popitem(last=False)


_parsed_answers = _ParsedAnswers()
_parse_again = QueryParser.parse


def _parse(parser: Any, response: Mapping[str, Any], shape: Any) -> Any:
    """Parse an answer of the protocols query and ec2.

    Its root names the operation and the version of the API; its headers are only passed on.
    """
    if response["status_code"] >= _FIRST_ERROR_STATUS or shape is None:
        return _parse_again(parser, response, shape)
    key = type(parser), shape.name, response["status_code"], hashlib.sha256(response["body"]).digest()
    pickled = _parsed_answers.get(key)
    if pickled is None:
        parsed = _parse_again(parser, response, shape)
        _parsed_answers.put(key, pickle.dumps(parsed, pickle.HIGHEST_PROTOCOL))
        return parsed
    parsed = pickle.loads(pickled)  # noqa: S301 - pickled above
    parsed["ResponseMetadata"]["HTTPHeaders"] = lowercase_dict(response["headers"])
    return parsed
