"""EC2's eventual consistency: answers that lag, or that leave resources out.

EC2 makes a change at once and shows it later: "changes ... might not be immediately visible to subsequent commands"
(EC2 Developer Guide, "Eventual consistency in the Amazon EC2 API"). moto's answers are always current. Here the answers
of DescribeInstances can lag, come in pages of which some are empty, and leave out a share of the instances; those about
subnets, security groups and images can leave out some, too. CreateTags and TerminateInstances don't know an instance at
first, nor do StopInstances and StartInstances.
"""

from __future__ import annotations

import copy
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from moto.ec2.exceptions import EC2ClientError, InvalidInstanceIdError
from moto.ec2.utils import filter_reservations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from moto.ec2.models.instances import InstanceState

T = TypeVar("T")


class EventualConsistency:
    """What EC2 shows of its instances. At first everything, at once."""

    def __init__(self, *, now: Callable[[], datetime], seed: int = 0) -> None:
        self.lag = timedelta()
        """How old DescribeInstances' answers are: younger instances are unknown, newer states not shown."""
        self.left_out = 0.0
        """The share of the instances that an incomplete answer of DescribeInstances leaves out; 1: it is empty."""
        self.resources_left_out = 0.0
        """The share of subnets, security groups and images that an incomplete answer by filters leaves out."""
        self.incomplete = 1.0
        """The share of the answers that are incomplete."""
        self.page_size: int | None = None
        """The reservations of a page (None: as many as requested). Any page may be empty, so the first one is then."""
        self.tag_lag = timedelta()
        """How long CreateTags doesn't know a new instance."""
        self.hidden_tags = timedelta()
        """How long IAM doesn't see the tags of a new instance: actions that need them are denied."""
        self.disrupted_zones: frozenset[str] = frozenset()
        """Zones whose instances EC2 can't describe: such calls fail, and those that name no instances."""
        self._now = now
        self._random = random.Random(seed)  # noqa: S311 - not for security: which instances an answer leaves out
        self._resources_random = random.Random(seed)  # noqa: S311 - the same, for other resources
        self._states: dict[str, list[tuple[datetime, InstanceState]]] = {}

    def changed(self, instance: Any, state: InstanceState) -> None:
        """Remember when an instance got its state."""
        # moto changes the object in place.
        self._states.setdefault(instance.id, []).append((self._now(), copy.copy(state)))

    def described(self, reservations: Sequence[Any], filters: Any, ids: Sequence[str]) -> list[Any]:
        """DescribeInstances' answer: the reservations with what EC2 shows of their instances; ``ids``: only those.

        Raises:
            InvalidInstanceIdError: EC2 shows no instance with one of the ids.
            EC2ClientError: a zone is disrupted, and the call may be about its instances.
        """
        self._check_zones(reservations, ids)
        shown = []
        leaves_out = bool(self.left_out) and self._random.random() < self.incomplete
        for reservation in reservations:
            answer = copy.copy(reservation)
            answer.instances = [
                self._as_shown(i)
                for i in reservation.instances
                if (not ids or i.id in ids) and self._is_known(i) and not (leaves_out and self._is_left_out())
            ]
            if answer.instances:
                shown.append(answer)
        unknown = set(ids) - {i.id for answer in shown for i in answer.instances}
        if unknown:
            raise InvalidInstanceIdError(sorted(unknown))
        return list(filter_reservations(shown, filters)) if filters else shown

    def _check_zones(self, reservations: Sequence[Any], ids: Sequence[str]) -> None:
        # As in the API reference of DescribeInstances: ids in the affected zone, or none at all.
        zones = (
            {i.placement.zone for r in reservations for i in r.instances if i.id in ids}
            if ids
            else self.disrupted_zones
        )
        if self.disrupted_zones & zones:
            raise EC2ClientError("Unavailable", "The server is overloaded and can't handle the request.")

    def listed(self, resources: Sequence[T]) -> list[T]:
        """The answer to a question about subnets, security groups or images by filters."""
        choose = self._resources_random.random
        if not self.resources_left_out or choose() >= self.incomplete:
            return list(resources)
        return [resource for resource in resources if choose() >= self.resources_left_out]

    def check_known(self, instances: Iterable[Any]) -> None:
        """Raise InvalidInstanceIdError for an instance that isn't described yet, as EC2's actions on instances do."""
        if unknown := [instance.id for instance in instances if not self._is_known(instance)]:
            raise InvalidInstanceIdError(unknown)

    def check_taggable(self, resource_ids: Sequence[str], launch_times: Callable[[str], datetime | None]) -> None:
        """Raise InvalidInstanceIdError for an instance that CreateTags doesn't know yet."""
        for resource_id in resource_ids:
            launched_at = launch_times(resource_id) if resource_id.startswith("i-") else None
            if launched_at is not None and self._now() - launched_at < self.tag_lag:
                raise InvalidInstanceIdError(resource_id)

    def hides_tags(self, resource_id: str, launched_at: Callable[[str], datetime | None]) -> bool:
        """Whether IAM doesn't see the resource's tags yet, as it is a new instance."""
        if not self.hidden_tags or not resource_id.startswith("i-"):
            return False
        at = launched_at(resource_id)
        return at is not None and self._now() - at < self.hidden_tags

    def page(self, reservations: list[Any], *, token: str, max_results: int) -> tuple[list[Any], str | None]:
        """The page that a token stands for ("": the first), and the token of the next."""
        if self.page_size is not None and not token:
            return [], "0"
        start = int(token or 0)
        end = start + min(self.page_size or max_results, max_results)
        return reservations[start:end], str(end) if end < len(reservations) else None

    def _is_known(self, instance: Any) -> bool:
        states = self._states.get(instance.id)
        first = states[0][0] if states else launch_time(instance)  # a started instance has a new launch time
        return not self.lag or self._now() - first >= self.lag

    def _is_left_out(self) -> bool:
        return self._random.random() < self.left_out

    def _as_shown(self, instance: Any) -> Any:
        """The instance in its state of ``lag`` ago."""
        if not self.lag:
            return instance
        states = [state for at, state in self._states.get(instance.id, []) if at <= self._now() - self.lag]
        if not states or states[-1].name == instance._state.name:  # noqa: SLF001 - moto offers no setter
            return instance
        shown = copy.copy(instance)
        shown._state = states[-1]  # noqa: SLF001 - the same
        return shown


def launch_time(instance: Any) -> datetime:
    """When the instance was launched (UTC)."""
    launched_at: datetime = instance.launch_time
    return launched_at.replace(tzinfo=UTC)
