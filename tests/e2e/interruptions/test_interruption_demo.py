"""``tenon demo --interrupt``: the figures of a run in which EC2 interrupts instances."""

from __future__ import annotations

import time

import pytest
from rich.console import Console

from cli.demo.interruptions import Interrupt
from cli.demo.request import DemoRequest
from cli.demo.runner import Demo
from tests.integration.cli.output_schema import assert_follows_schema


@pytest.mark.calm_world  # it compares seconds
def test_the_demo_compares_replacing_at_once_with_draining_first(capsys: pytest.CaptureFixture[str]) -> None:
    request = DemoRequest(only_json=True, interrupt=Interrupt.parse("spot=all"), elapsed=time.process_time)
    figures = Demo(request, Console(stderr=True)).run()
    result = figures.interruptions
    assert result is not None
    assert result.warned == result.drained_in_time == result.replacement_before_drain_end > 0
    assert result.seconds_warning_to_replacement is not None
    assert result.seconds_warning_to_drained is not None
    assert result.seconds_warning_to_replacement < result.seconds_warning_to_drained < 110
    assert result.seconds_warning_to_running is not None
    assert result.seconds_drain_then_provision is not None
    assert result.seconds_warning_to_running < result.seconds_drain_then_provision
    assert result.seconds_pod_away is not None
    assert result.seconds_pod_away_drain_then_provision is not None
    assert result.seconds_pod_away < result.seconds_pod_away_drain_then_provision / 2
    printed = capsys.readouterr().out
    assert '"seconds_drain_then_provision"' in printed
    assert_follows_schema(["demo", "--json"], printed)
