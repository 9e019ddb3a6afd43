"""The traffic between zones in a report: what a recording holds of it, and the page's section."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from cli import html_page
from cli.traffic.cross_zone import USD_PER_CROSSING_TB, ServiceTraffic, cross_zone_traffic
from cli.traffic.placed_pods import running_pods
from cli.traffic.wording import percent, same_zone
from shared.base.plurals import plural
from shared.base.struct import WireStruct

if TYPE_CHECKING:
    from cli.cluster.services import ObservedServices
    from shared.snapshot import Snapshot

_MAX_SERVICES = 20
_COLUMNS = (
    ("Service", ""),
    ("Endpoints", "figure"),
    ("Crosses zones", "figure"),
    ("$ per TB", "figure"),
    ("With PreferSameZone", ""),
)
"""Each column's name and the class of its cells."""


class RecordedTraffic(WireStruct, kw_only=True):
    """The share of Services' traffic that crosses zones at the end of a recording, 0 to 1.

    ``share`` is None if no Service has endpoints; ``problem`` is why the traffic isn't known, empty if it is. Services
    of which most crosses come first.
    """

    share: float | None = None
    services: list[ServiceTraffic] = []
    problem: str = ""


def recorded_traffic(observed: ObservedServices, snapshot: Snapshot) -> RecordedTraffic:
    """The traffic of the cluster now."""
    if observed.problem:
        return RecordedTraffic(problem=observed.problem)
    traffic = cross_zone_traffic(observed.services, list(running_pods(snapshot)))
    services = sorted(traffic.services, key=lambda s: (-s.share * s.endpoints, s.service))
    return RecordedTraffic(share=traffic.share, services=services)


def section(traffic: RecordedTraffic | None) -> str:
    """The page's section; nothing if the recording has none, as those of the demo."""
    if traffic is None:
        return ""
    return (
        '<section aria-labelledby="traffic"><h2 id="traffic">Traffic between zones</h2>'
        f'<p class="quiet">{html.escape(_summary(traffic))}</p>{_table(traffic)}</section>'
    )


def _summary(traffic: RecordedTraffic) -> str:
    if traffic.problem:
        return f"Not known: {traffic.problem}."
    if traffic.share is None:
        return "No Service with a selector has ready endpoints."
    return (
        f"{percent(traffic.share)} of Service traffic crosses zones if clients are spread as the cluster's pods and "
        f"every endpoint gets as much. AWS charges ${USD_PER_CROSSING_TB:g} per TB that crosses; it isn't measured."
    )


def _table(traffic: RecordedTraffic) -> str:
    if not traffic.services:
        return ""
    head = "".join(f"<th scope='col'{f' class={class_}' if class_ else ''}>{name}</th>" for name, class_ in _COLUMNS)
    rows = "".join(_row(service) for service in traffic.services[:_MAX_SERVICES])
    hidden = len(traffic.services) - _MAX_SERVICES
    more = f'<p class="quiet">{plural(hidden, "more Service")} not shown.</p>' if hidden > 0 else ""
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Traffic between zones"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )


def _row(service: ServiceTraffic) -> str:
    """One row."""
    texts = (
        service.service,
        str(service.endpoints),
        percent(service.share),
        f"${service.usd_per_tb:.2f}",
        same_zone(service),
    )
    row = zip(_COLUMNS, texts, strict=True)
    cells = "".join(html_page.cell(name, text, class_=class_) for (name, class_), text in row)
    return f"<tr>{cells}</tr>"
