"""The bundles of functions."""

import os
import re
import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path

import kubernetes
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import assembly, function_sizes
from infra.bundle import bundling, bytecode, function_imports, requirements_lock

LOCK = """\
alpha==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:ab
    # via tenon (pyproject.toml)
beta==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:ba
    # via alpha
beta==3.0 ; python_full_version >= '3.12' \\
    --hash=sha256:bb
    # via alpha
gamma==1.0 ; sys_platform == 'win32' \\
    --hash=sha256:ca
    # via beta
delta==1.0 \\
    --hash=sha256:da
    # via
    #   beta
    #   epsilon
epsilon==1.0 \\
    --hash=sha256:ea
    # via tenon (pyproject.toml)
"""


def module(folder: Path, name: str, text: str) -> None:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_bundle_has_direct_and_transitive_imports(tmp_path: Path) -> None:
    module(tmp_path, "functions.one.handler", "import json\nfrom shared.deep import thing\nimport alpha.sub\n")
    module(tmp_path, "functions.two.handler", "import unwanted\n")
    module(tmp_path, "shared.__init__", "")
    module(tmp_path, "shared.deep.__init__", "import by_parent\n")
    module(tmp_path, "shared.deep.thing", "def f():\n    from beta import x\n")
    assert function_imports.third_party(tmp_path, "one") == {"alpha", "beta", "by_parent"}


def test_imports_for_the_type_checker_are_not_bundled(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import heavy\nelse:\n    import light\n"
    module(tmp_path, "functions.one.handler", text)
    assert function_imports.third_party(tmp_path, "one") == {"light"}


def test_a_missing_first_party_module_fails_the_bundle(tmp_path: Path) -> None:
    module(tmp_path, "functions.one.handler", "from shared.gone import thing\n")
    module(tmp_path, "shared.__init__", "")
    with pytest.raises(function_imports.MissingModuleError, match=r"functions\.one\.handler imports shared\.gone"):
        function_imports.third_party(tmp_path, "one")


def test_locked_versions_are_those_for_lambdas_python() -> None:
    pins = requirements_lock.parse(LOCK)
    assert pins["beta"].version == "3.0"
    assert "gamma" not in pins
    assert pins["alpha"].hashes == ("--hash=sha256:aa", "--hash=sha256:ab")


def test_dependencies_are_included_but_not_those_of_excluded_packages() -> None:
    pins = requirements_lock.parse(LOCK)
    assert [pin.name for pin in requirements_lock.closure(pins, ["Alpha"])] == ["alpha", "beta", "delta"]
    assert [pin.name for pin in requirements_lock.closure(pins, ["alpha"], without=["beta"])] == ["alpha"]


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(requirements_lock.LockError, match=r"zeta is not in requirements\.lock"):
        requirements_lock.closure(requirements_lock.parse(LOCK), ["zeta"])


@given(st.sets(st.sampled_from(["alpha", "beta", "delta", "epsilon"])))
def test_every_package_is_a_root_or_a_dependency(roots: set[str]) -> None:
    chosen = {pin.name: pin for pin in requirements_lock.closure(requirements_lock.parse(LOCK), roots)}
    assert roots <= set(chosen)
    assert all(name in roots or pin.via & set(chosen) for name, pin in chosen.items())


def test_every_requirement_has_hashes() -> None:
    pins = requirements_lock.parse((assembly.CHECKOUT / "requirements.lock").read_text())
    lines = requirements_lock.requirements(requirements_lock.closure(pins, ["kubernetes", "numpy"])).splitlines()
    assert all(re.fullmatch(r"[a-z0-9-]+==\S+( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)


def test_a_bundle_is_determined_by_its_input(tmp_path: Path) -> None:
    checkout, packages = tmp_path / "checkout", tmp_path / "packages"
    module(checkout, "functions.__init__", "")
    module(checkout, "functions.one.handler", "x = 1\n")
    module(checkout, "shared.thing", "")
    module(packages, "alpha.__init__", "")
    first = bundling._bundle(tmp_path / "a", checkout, "one", packages, {})
    second = bundling._bundle(tmp_path / "b", checkout, "one", packages, {})
    assert first.name == second.name
    assert {path.relative_to(first).as_posix(): path.read_bytes() for path in bundling._files(first)} == {
        path.relative_to(second).as_posix(): path.read_bytes() for path in bundling._files(second)
    }
    assert (first / "functions" / "one" / "handler.py").stat().st_mode & 0o777 == 0o644
    module(checkout, "shared.thing", "y = 2\n")
    assert bundling._bundle(tmp_path / "a", checkout, "one", packages, {}).name != first.name


def test_another_functions_code_is_not_in_the_bundle(tmp_path: Path) -> None:
    module(tmp_path, "functions.__init__", "")
    module(tmp_path, "functions.one.handler", "")
    module(tmp_path, "functions.two.handler", "")
    module(tmp_path, "shared.__init__", "")
    bundle = bundling._bundle(tmp_path / "out", tmp_path, "one", tmp_path / "none", {})
    assert not (bundle / "functions" / "two").exists()


def test_a_function_without_a_handler_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "requirements.lock").write_text(LOCK)
    with pytest.raises(bundling.BundleError, match=r"functions/provisioner/handler\.py does not exist"):
        bundling.bundles(tmp_path, mode="full")


@pytest.mark.parametrize(
    ("path", "left_out"),
    [
        ("kubernetes/client/models/v1_pod.py", True),
        ("kubernetes/client/models/__init__.py", False),
        ("kubernetes/client/api/core_v1_api.py", True),
        ("kubernetes/aio/client/api_client.py", True),
        ("kubernetes/client/api_client.py", False),
        ("numpy/_core/tests/test_umath.py", True),
        ("numpy/__init__.pyi", True),
        ("numpy/_core/_simd.cpython-313-x86_64-linux-gnu.so", True),
        (".lock", True),
        ("numpy/_core/_multiarray_umath.cpython-313-aarch64-linux-gnu.so", False),
        ("numpy-2.5.5.dist-info/RECORD", True),
        ("numpy-2.5.5.dist-info/METADATA", False),
        ("numpy-2.5.5.dist-info/licenses/LICENSE.txt", False),
    ],
)
def test_unused_files_are_left_out_and_licences_are_kept(path: str, left_out: bool) -> None:  # noqa: FBT001
    assert bundling.is_left_out(Path(path)) == left_out


REFUSE = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith({below!r}) or name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(name + " is not in the bundle")
sys.meta_path.insert(0, Refuse())
importlib.import_module({module!r})
"""


def run_as_bundled(program: str, folder: Path) -> None:
    """Run it where what bundles empty is empty: the packages' modules are found where they are installed."""
    for name in bundling.EMPTIED:
        package = Path(name).parent
        (folder / package).mkdir(parents=True)
        (installed,) = kubernetes.__path__
        package_folder = Path(installed).parent / package
        (folder / name).write_text(f"__path__.append({str(package_folder)!r})\n")
    path = os.pathsep.join([str(folder), str(assembly.CHECKOUT)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def refusing(module: str) -> str:
    """A program that imports the module without anything that bundles leave out."""
    return REFUSE.format(
        below=tuple(f"{name}." for name in bundling.PRUNED),
        packages=sorted(name.replace("-", "_") for name in bundling.UNUSED),
        module=module,
    )


@pytest.mark.parametrize("function", function_sizes.OF_ANY_MODE)
def test_a_function_imports_from_its_bundle(function: str, tmp_path: Path) -> None:
    run_as_bundled(refusing(f"functions.{function}.handler"), tmp_path)


@pytest.mark.parametrize("function", function_sizes.OF_ANY_MODE)
def test_importing_a_function_does_not_read_the_environment(function: str, tmp_path: Path) -> None:
    """What is read at import can't be changed in a warm process, and fails where nobody can tell why."""
    program = f"""
import os, sys
import boto3, numpy, kubernetes.client.rest, aws_lambda_powertools.metrics, aws_lambda_powertools.utilities.batch
read = []
class Watched(dict):
    def __getitem__(self, key): read.append(key); return super().__getitem__(key)
    def get(self, key, default=None): read.append(key); return super().get(key, default)
os.environ = Watched(os.environ)
import functions.{function}.handler
assert not [key for key in read if key.startswith("TENON")], read
"""
    run_as_bundled(program, tmp_path)


@pytest.mark.parametrize("function", ["lifecycle", "termination"])
def test_a_cold_start_loads_numpy_only_where_every_invocation_schedules(function: str, tmp_path: Path) -> None:
    run_as_bundled(f"import sys, functions.{function}.handler; assert 'numpy' not in sys.modules", tmp_path)


def test_time_zones_are_bundled_where_schedules_are_read(tmp_path: Path) -> None:
    module(tmp_path, "functions.one.handler", "def zone(name):\n    from zoneinfo import ZoneInfo\n")
    assert function_imports.third_party(tmp_path, "one") == {"tzdata"}


def test_the_kubernetes_transport_works_in_a_bundle(tmp_path: Path) -> None:
    program = refusing("shared.cluster.client")
    program += """
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from kubernetes.client.configuration import Configuration
from shared.cluster.client import Client
class Answer(BaseHTTPRequestHandler):
    def do_PATCH(self):
        headers = [self.headers[name] for name in ("Content-Type", "Authorization", "User-Agent")]
        requests.append((self.path, *headers, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_): pass
requests = []
with HTTPServer(("127.0.0.1", 0), Answer) as server:
    threading.Thread(target=server.handle_request).start()
    configuration = Configuration(host=f"http://127.0.0.1:{server.server_port}")
    configuration.api_key["authorization"] = "abc"
    configuration.api_key_prefix["authorization"] = "Bearer"
    client = Client(configuration)
    client.patch("/api/v1/nodes/a", {"metadata": {"labels": {"a": "b"}}})
    client.close()
(request,) = requests
assert request == ("/api/v1/nodes/a", "application/merge-patch+json", "Bearer abc", "tenon",
               b'{"metadata": {"labels": {"a": "b"}}}'), request
"""
    run_as_bundled(program, tmp_path)


def test_bytecode_is_of_lambdas_version_and_unchecked(tmp_path: Path) -> None:
    module(tmp_path, "one", "x = 1\n")
    bytecode.Compiler().compile(tmp_path)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["one.py"]
    bytecode.Compiler(executable=sys.executable, version="this").compile(tmp_path)
    (compiled,) = tmp_path.glob("__pycache__/*.pyc")
    data = compiled.read_bytes()
    assert data[:4] == MAGIC_NUMBER
    assert int.from_bytes(data[4:8], "little") == 0b01  # PEP 552: by hash, and not to be checked
    assert b"/var/task/one.py" in data


def test_invalid_python_fails_the_bundle(tmp_path: Path) -> None:
    module(tmp_path, "one", "x =\n")
    with pytest.raises(bytecode.CompileError, match=r"one\.py"):
        bytecode.Compiler(executable=sys.executable, version="this").compile(tmp_path)


def test_a_bundle_above_the_size_limit_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, "functions.__init__", "")
    module(tmp_path, "functions.one.handler", "#" * 3 * 2**19)
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr(bundling, "LIMIT_MIB", 1)
    with pytest.raises(bundling.BundleError, match=r"functions/one is 2 MiB"):
        bundling._bundle(tmp_path / "out", tmp_path, "one", tmp_path / "none", {})
    assert not list((tmp_path / "out").glob("*"))
