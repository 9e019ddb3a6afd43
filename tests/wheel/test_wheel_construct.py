"""Tenon in other CDK apps, from an installed wheel: the docs' app, and the same bundles as a checkout's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from infra import assembly, function_sizes
from infra.bundle import bundling
from tests.infra.cdk_command import CDK
from tests.wheel import building

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

BUNDLED = """
import sys
from pathlib import Path
from tenon.infra import function_sizes, installation
from tenon.infra.bundle import bundling
for function in function_sizes.OF_ANY_MODE:
    print(bundling._bundle(Path(sys.argv[1]), installation.ROOT, function, Path(sys.argv[1]) / "none", {}).name)
print(installation.lock(installation.ROOT).read_text())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder outside of the checkout with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(building.wheel(folder)) as archive:
        archive.extractall(folder / "site-packages")
    return folder / "site-packages"


def environ(installed: Path, home: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": str(installed),
        "XDG_CACHE_HOME": str(home),
        "AWS_EC2_METADATA_DISABLED": "true",
        "CI": "true",
    }


@pytest.mark.usefixtures("fetched")
def test_the_app_of_the_documentation_is_synthesised_outside_of_the_checkout_with_packages_of_its_own(
    installed: Path, tmp_path: Path
) -> None:
    page = (assembly.CHECKOUT / "docs" / "construct.md").read_text()
    (app,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    for package in ("infra", "shared"):  # an app's own
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("OURS = True\n")
    app = f"import infra\nimport shared\n{app}\nassert infra.OURS and shared.OURS\n"
    app, replaced = re.subn(r"StackOptions\(", 'StackOptions(bundle="source", ', app)
    assert replaced == 2
    (tmp_path / "app.py").write_text(app)
    done = subprocess.run(
        [*CDK, "synth", "--quiet", "--no-notices", "--app", f"{sys.executable} app.py"],
        cwd=tmp_path,
        env=environ(installed, tmp_path / "cache"),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    out = tmp_path / "cdk.out"
    stack, platform = (json.loads((out / f"{n}.template.json").read_text()) for n in ("tenon-prod", "platform"))
    names = {r["Properties"].get("FunctionName") for r in platform["Resources"].values() if "Function" in r["Type"]}
    assert {"tenon-staging-provisioner", "tenon-staging-nodegroups"} <= names
    deployed = assembly.cached(cluster="prod", root=assembly.CHECKOUT, context={"bundle": "source"})
    expected = json.loads((deployed / "tenon-prod.template.json").read_text())
    assert _types(stack) == _types(expected)
    assert stack["Outputs"] == expected["Outputs"]
    assert list((tmp_path / "cache" / "tenon").iterdir())
    assert not (installed / "build").exists()  # an installation may be read-only
    # The code of functions that run in deployments, which the CDK takes from the installation itself.
    assert _hashes(out, "kinds_check") == _hashes(deployed, "kinds_check") != set()


def _types(template: dict[str, Any]) -> dict[str, str]:
    return {id_: r["Type"] for id_, r in template["Resources"].items() if r["Type"] != "AWS::CDK::Metadata"}


def _hashes(out: Path, module: str) -> set[str]:
    return {path.parents[3].name for path in out.glob(f"asset.*/infra/cluster/kubernetes/{module}.py")}


def test_an_installation_bundles_the_same_code_as_the_checkout(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUNDLED, str(tmp_path / "installed")],
        cwd=tmp_path,
        env=environ(installed, tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )
    none = tmp_path / "none"
    own = [
        bundling._bundle(tmp_path / "own", assembly.CHECKOUT, function, none, {}).name
        for function in function_sizes.OF_ANY_MODE
    ]
    lock = (assembly.CHECKOUT / "requirements.lock").read_text()
    assert done.stdout == "".join(f"{name}\n" for name in own) + f"{lock}\n"
    for name in ("Dockerfile", "requirements.txt"):  # of the relay's image
        assert (installed / "tenon" / "sources" / "relay" / name).read_bytes() == (
            assembly.CHECKOUT / "relay" / name
        ).read_bytes()
