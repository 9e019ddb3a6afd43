"""The command of setuptools that collects a wheel's files.

layout.py moves the packages into one import package. A wheel also has the lock by which an installation bundles
functions as a checkout does, and by assets.py what the repository doesn't have. All of it goes into setuptools' own
build folder, never into the checkout's packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools.command.build_py import build_py

_ROOT = Path(__file__).resolve().parent.parent


class BuildPy(build_py):  # type: ignore[misc]  # setuptools has no types
    """Collects the modules, and then the assets; modules of earlier builds are removed."""

    def run(self) -> None:
        """Run the command."""
        if self.editable_mode:
            super().run()
            return
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()
        folder = Path(self.build_lib).resolve()
        shutil.copyfile(_ROOT / "requirements.lock", folder / "infra" / "requirements.lock")
        # processes of their own: the build's has imported setuptools' parts of packages that the CDK imports too
        for module in (["distribution.layout", "packages"], ["distribution.assets"]):
            subprocess.run([sys.executable, "-m", *module, str(folder)], cwd=_ROOT, check=True)  # noqa: S603 (our own arguments)
