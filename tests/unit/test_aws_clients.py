"""The time-outs of AWS clients: short where an answer is useful only at once, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from shared.base import aws, runtime


@pytest.mark.parametrize("order", [("short", "usual"), ("usual", "short")])
def test_calls_of_ec2_keep_their_time_out_whichever_was_made_first(
    monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    clients = {"short": aws.ec2_short_timeout, "usual": aws.ec2}
    with runtime.using(runtime.Runtime(environ={})):
        configs: dict[str, Any] = {name: clients[name]().meta.config for name in order}  # its options aren't typed
    seconds = {name: config.read_timeout for name, config in configs.items()}
    assert seconds == {"short": 2, "usual": aws.READ_SECONDS}
