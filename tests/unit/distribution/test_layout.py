"""The wheel's imports: each of ours is from the import package, and nothing else of a module changes."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from distribution import layout
from tests.unit.code import source


def rewritten(text: str) -> str:
    return layout.rewritten(text.encode(), name="x.py").decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from shared.api import labels\n", "from tenon.shared.api import labels\n"),
        ("from  cli import (\n    errors,\n    main,\n)\n", "from  tenon.cli import (\n    errors,\n    main,\n)\n"),
        ("if x:\n    from relay.main import run\n", "if x:\n    from tenon.relay.main import run\n"),
        ("import json, infra.app as app\n", "import json, tenon.infra.app as app\n"),
        ('é = "é"; from local import world\n', 'é = "é"; from tenon.local import world\n'),
        ("def f():\n    yield from shared\n", "def f():\n    yield from shared\n"),
        ("from . import shared\n", "from . import shared\n"),
        ("from .shared import x\n", "from .shared import x\n"),
        ("from sharedlib import x\n", "from sharedlib import x\n"),
        ("from boto3 import infra\n", "from boto3 import infra\n"),
        ('handler = "functions.relay.handler.handle"\n', 'handler = "functions.relay.handler.handle"\n'),
        ('text = """\nfrom shared import x\n"""\n', 'text = """\nfrom shared import x\n"""\n'),
        ("# from shared import x\n", "# from shared import x\n"),
        ('own_module("cli.main")\n', 'own_module("cli.main")\n'),
        ('files("botocore")\n', 'files("botocore")\n'),
    ],
)
def test_imports_are_rewritten_and_nothing_else(before: str, after: str) -> None:
    assert rewritten(before) == after


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import infra.app\n", "x.py:1: write `from` to import infra.app"),
        ("\nimport shared\n", "x.py:2: write `from` to import shared"),
        ("from \\\n    shared import x\n", "x.py:1: write `from shared` on one line"),
        ('importlib.import_module("cli.main")\n', '"cli.main" has another name in a wheel'),
        ('files("cli.report")\n', '"cli.report" has another name in a wheel'),
        ('importlib.util.find_spec("shared")\n', '"shared" has another name in a wheel'),
    ],
)
def test_what_cannot_be_rewritten_fails_the_build(text: str, why: str) -> None:
    with pytest.raises(layout.LayoutError, match=re.escape(why)):
        rewritten(text)


def test_every_module_of_the_wheel_can_be_rewritten_and_imports_none_of_ours_by_its_old_name() -> None:
    for path in source.modules(*layout.PACKAGES):
        after = layout.rewritten(path.read_bytes(), name=source.name(path))
        for node in ast.walk(ast.parse(after)):
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                assert (node.module or "").partition(".")[0] not in layout.PACKAGES, source.name(path)
        assert after.replace(b"tenon.", b"") == path.read_bytes().replace(b"tenon.", b"")


def test_entry_points_are_in_the_import_package() -> None:
    text = "[console_scripts]\nkubectl_complete-tenon = cli.main:complete\nother = sharedlib.main:run\n"
    assert layout.moved_entry_points(text) == (
        "[console_scripts]\nkubectl_complete-tenon = tenon.cli.main:complete\nother = sharedlib.main:run\n"
    )


def test_the_newest_version_of_the_changelog_is_that_of_the_distribution() -> None:
    project = tomllib.loads((source.ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    headings = re.findall(r"^## \[(\S+)\]", (source.ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] in {project["version"], "Unreleased"}
    assert project["version"] in headings
