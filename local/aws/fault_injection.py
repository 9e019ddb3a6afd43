"""AWS FIS's spot interruptions, which moto's experiments don't carry out.

An experiment of the action ``aws:ec2:send-spot-instance-interruptions`` interrupts the instances that its target names.
Other actions are not supported here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from local.aws.interceptor import json_error
from shared.base.struct import MutableStruct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.aws.interceptor import RawResponse

INTERRUPTION = "aws:ec2:send-spot-instance-interruptions"
_JSON = {"content-type": "application/json"}
_PREFIX = "EXT"


class Template(MutableStruct, kw_only=True):
    """An experiment template: the ARNs of the spot instances that it interrupts."""

    id: str
    resources: list[str]
    tags: dict[str, str]


class FaultInjection:
    """The experiment templates of the account, and what was started from them."""

    def __init__(self, interrupt: Callable[[list[str]], None]) -> None:
        self._interrupt = interrupt
        self._created = 0
        self.templates: dict[str, Template] = {}
        self.experiments: list[str] = []

    def serve(self, operation: str, path: str, body: bytes) -> RawResponse:
        """FIS's response to an operation; an error for those that nothing here calls."""
        request = json.loads(body or b"{}")
        match operation:
            case "CreateExperimentTemplate":
                return self._create(request)
            case "ListExperimentTemplates":
                shown = [{"id": t.id, "tags": t.tags} for t in self.templates.values()]
                return _answer({"experimentTemplates": shown})
            case "DeleteExperimentTemplate":
                return self._delete(path.rpartition("/")[2])
            case "StartExperiment":
                return self._start(request["experimentTemplateId"])
        return json_error(400, "ValidationException", f"{operation} is not supported here")

    def _create(self, request: Mapping[str, Any]) -> RawResponse:
        actions = list(request["actions"].values())
        if [action["actionId"] for action in actions] != [INTERRUPTION]:
            return json_error(400, "ValidationException", f"only {INTERRUPTION} is supported here")
        target = request["targets"][actions[0]["targets"]["SpotInstances"]]
        self._created += 1
        template = Template(
            id=f"{_PREFIX}{self._created:x}", resources=target["resourceArns"], tags=dict(request.get("tags", {}))
        )
        self.templates[template.id] = template
        return _answer({"experimentTemplate": {"id": template.id, "tags": template.tags}})

    def _delete(self, id_: str) -> RawResponse:
        template = self.templates.pop(id_, None)
        if template is None:
            return json_error(404, "ResourceNotFoundException", f"no experiment template {id_}")
        return _answer({"experimentTemplate": {"id": id_}})

    def _start(self, id_: str) -> RawResponse:
        template = self.templates.get(id_)
        if template is None:
            return json_error(404, "ResourceNotFoundException", f"no experiment template {id_}")
        self._interrupt([arn.rpartition("/")[2] for arn in template.resources])
        self.experiments.append(id_)
        return _answer({"experiment": {"id": f"EXP{len(self.experiments):x}", "experimentTemplateId": id_}})


def _answer(body: Mapping[str, Any]) -> RawResponse:
    return 200, _JSON, json.dumps(body).encode()
