"""The Helm chart's files; tests/real/test_chart.py renders them by Helm."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

from distribution import chart
from infra import installation

if TYPE_CHECKING:
    from pathlib import Path


def test_every_place_of_a_value_has_an_expression() -> None:
    files = chart.files()
    templates = [text for name, text in files.items() if name.startswith("templates/")]
    assert not re.findall(r"\w+-value\b", "".join(templates))
    used = set(re.findall(r"\.Values\.([\w.]+)", "".join(templates)))
    values = yaml.safe_load(files["values.yaml"])
    known = {name for name, value in values.items() if not isinstance(value, dict)}
    assert used == known | {f"relay.{name}" for name in values["relay"]}


def test_it_has_the_distributions_version_and_is_written_as_one_folder(tmp_path: Path) -> None:
    folder = chart.write(tmp_path)
    assert yaml.safe_load((folder / "Chart.yaml").read_text())["version"] == installation.version()
    assert {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")} == set(chart.files())
