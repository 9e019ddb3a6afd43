"""Where the embedded API server answers otherwise than the real one, and why that is left as it is.

Every entry is also in local/kubernetes/README.md. A difference that no entry explains fails the test that finds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.real.differential.comparison import Difference

_BAD_REQUEST = 400


@dataclass(frozen=True, kw_only=True)
class KnownDifference:
    """The differences of these resources and fields (regular expressions) for which ``holds`` is true."""

    reason: str
    resources: str
    fields: str
    verbs: str = ".*"
    holds: Callable[[Difference], bool] = lambda _: True

    def explains(self, difference: Difference) -> bool:
        """Whether the difference is of this kind."""
        exchange = difference.exchange
        return (
            re.fullmatch(self.resources, exchange.resource) is not None
            and re.fullmatch(self.verbs, exchange.verb) is not None
            and re.fullmatch(self.fields, difference.field) is not None
            and self.holds(difference)
        )


def _is_token_volume_alone(difference: Difference) -> bool:
    """Whether the lists differ in nothing but the volume of the service account's token."""
    real, embedded = difference.real, difference.embedded
    if not isinstance(real, list):
        return False
    rest = [item for item in real if not str(item.get("name", "")).startswith("kube-api-access-")]
    return rest == (embedded if isinstance(embedded, list) else [])


def _is_about_removed_spec(difference: Difference) -> bool:
    """Whether an applied configuration without a spec made the real server miss fields that have defaults."""
    is_applied = "apply" in difference.exchange.headers["content-type"]
    return is_applied and b'"spec"' not in difference.exchange.body and ": FieldValueRequired" in str(difference.real)


KNOWN_DIFFERENCES = (
    KnownDifference(
        reason="No token is mounted: nothing runs in the pods.",
        resources="pods",
        verbs="create|patch",
        fields=r"spec\.(volumes|(initC|c)ontainers\[\]\.volumeMounts)",
        holds=_is_token_volume_alone,
    ),
    KnownDifference(
        reason="Services get no addresses: there is no network.",
        resources="services",
        fields=r"spec\.(clusterIPs?|ipFamil(ies|yPolicy)|internalTrafficPolicy)",
    ),
    KnownDifference(
        reason="A custom kind is served with its definition, where a real server needs a moment to accept the names.",
        resources=r"customresourcedefinitions\.apiextensions\.k8s\.io",
        verbs="create|patch",
        fields=r"status\.(acceptedNames\..*|conditions)",
    ),
    KnownDifference(
        reason="A JSON patch can't copy from an absent path, as RFC 6902 says; a real server writes an empty value.",
        resources=".*",
        verbs="patch",
        fields="status|effect",
        holds=lambda difference: (
            b'"op": "copy"' in difference.exchange.body and difference.exchange.status < _BAD_REQUEST
        ),
    ),
    KnownDifference(
        reason="An applier that gives up a map's last owned field leaves its defaults, which a real server removes.",
        resources=".*",
        verbs="patch",
        fields=r"causes(\[\])?",
        holds=_is_about_removed_spec,
    ),
    KnownDifference(
        reason="A custom kind is served with its definition, where a real server finds out about it and fills a cache.",
        resources=r".*\..*",
        verbs="list|get",
        fields="status",
        # Before it knows of the kind, it answers with a text and not with a Status.
        holds=lambda difference: difference.real in {"404", "429 storage is (re)initializing"},
    ),
)
"""All of them, each with its reason."""


def unexplained(differences: Iterable[Difference]) -> list[Difference]:
    """The differences that no entry explains."""
    return [d for d in differences if not any(known.explains(d) for known in KNOWN_DIFFERENCES)]
