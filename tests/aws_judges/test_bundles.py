"""Every function's bundle in Lambda's runtime interface emulator, on Lambda's Python, against the local world."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra import assembly, function_sizes
from infra.bundle import bundling, bytecode
from shared.base.struct import with_fields
from tests.aws_judges import engines
from tests.aws_judges.bundle_worlds import FUNCTIONS, WORLDS
from tests.aws_judges.runtime_emulator import Function, Runtime, imported, invoke

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MACHINE = platform.machine()


@pytest.fixture(scope="session")
def runtime() -> Iterator[Runtime]:
    """The emulator, Lambda's packages and its Python, whose bytecode bundles get."""
    try:
        python = engines.lambda_python()
        emulator, sandbox, client = engines.runtime_emulator(), engines.sandbox(), engines.runtime_client()
    except engines.MissingToolError as error:
        pytest.skip(str(error))
    prefix = subprocess.run(
        [python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}")
        bytecode.compiler.cache_clear()
        yield Runtime(
            client=client,
            sdk=bundling.runtime(assembly.CHECKOUT, machine=_MACHINE),
            python=Path(prefix.stdout.strip()),
            emulator=emulator,
            sandbox=sandbox,
        )
    bytecode.compiler.cache_clear()


@pytest.mark.parametrize("world", WORLDS)
def test_every_bundle_answers_a_real_event(
    world: str, runtime: Runtime, judged: Callable[[str, int], None], bundle_row: Callable[[str], None]
) -> None:
    bundles = bundling.bundles(assembly.CHECKOUT, FUNCTIONS[world], mode="full", machine=_MACHINE)
    failures = []
    with WORLDS[world](bundles) as functions:
        for name, each in functions.items():
            module = imported(runtime, each.function)
            answer = invoke(runtime, each.function, each.event)
            if answer.error or not each.has_effect():
                failures.append(f"{name}: {answer.error or 'no effect'}\n{answer.logs[-3000:]}")
            bundle_row(
                f"{name:<14}imported in {module.seconds:.2f} s, answered after {answer.seconds:.2f} s, "
                f"{answer.mib:.0f} MiB of {each.function.memory_mib}"
            )
            if answer.mib > each.function.memory_mib:
                failures.append(f"{name}: {answer.mib:.0f} MiB are more than it has")
    judged("bundles that answered a real event", len(functions))
    assert failures == []
    assert set(functions) == set(FUNCTIONS[world])


def test_every_function_is_judged() -> None:
    assert sorted(name for names in FUNCTIONS.values() for name in names) == sorted(function_sizes.OF_ANY_MODE)


@pytest.fixture
def catalog(tmp_path: Path) -> Function:
    """The catalog function, with a bundle that may be damaged."""
    (bundle,) = bundling.bundles(assembly.CHECKOUT, [function_sizes.CATALOG], mode="full", machine=_MACHINE).values()
    tmp_path.chmod(0o755)
    return Function(
        name="tenon-demo-catalog",
        handler="functions.catalog.handler.handle",
        bundle=shutil.copytree(bundle, tmp_path / "bundle"),
        variables={"TENON_CATALOG_BUCKET": "catalog", "TENON_CLUSTER_NAME": "demo"},
        memory_mib=1024,
        timeout=10,
        access_key="ASIACATALOG",
        endpoint="http://127.0.0.1:9",  # nothing listens there
    )


def missing_package(function: Function) -> Function:
    shutil.rmtree(function.bundle / "msgspec")
    return function


def missing_module(function: Function) -> Function:
    (function.bundle / "shared" / "instance_types" / "catalog_store.py").unlink()
    return function


def missing_variable(function: Function) -> Function:
    return with_fields(function, variables={"TENON_CLUSTER_NAME": "demo"})


def other_architecture(function: Function) -> Function:
    for library in function.bundle.rglob("*.so"):
        library.write_bytes(b"\x7fELF of another machine")
    return function


def with_handler(function: Function, body: str) -> Function:
    """The function with another handler, whose bytecode isn't there."""
    folder = function.bundle / "functions" / "catalog"
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    (folder / "handler.py").write_text(f"import os\ndef handle(event, context):\n{lines}")
    return function


def writing(target: str) -> Callable[[Function], Function]:
    return lambda function: with_handler(function, f"open({target!r}, 'w').close()\nreturn 'written'")


SEEDED = (
    (missing_package, "Runtime.ImportModuleError: Unable to import module 'functions.catalog.handler'"),
    (missing_module, "Runtime.ImportModuleError: Unable to import module 'functions.catalog.handler'"),
    (other_architecture, "Runtime.ImportModuleError"),
    (missing_variable, "SettingsError: missing environment variable TENON_CATALOG_BUCKET"),
    (writing("/var/task/cache"), "OSError: [Errno 30] Read-only file system"),
    (writing("/var/lang/cache"), "OSError: [Errno 30] Read-only file system"),
)


@pytest.mark.parametrize(("fault", "error"), SEEDED)
def test_a_broken_bundle_is_noticed(
    fault: Callable[[Function], Function],
    error: str,
    runtime: Runtime,
    catalog: Function,
    judged: Callable[[str, int], None],
) -> None:
    assert invoke(runtime, fault(catalog), {"refresh": "prices"}).error.startswith(error)
    judged("seeded faults that were noticed", 1)


def test_only_tmp_can_be_written_and_nobody_runs_it(runtime: Runtime, catalog: Function) -> None:
    body = """
open("/tmp/cache", "w").close()
home = os.path.exists("/root") or os.path.exists("/home")
return [os.geteuid(), home, sorted(name for name in os.environ if name.startswith("TENON"))]
"""
    user, has_home, variables = invoke(runtime, with_handler(catalog, body), {}).payload
    assert user == (65534 if os.geteuid() == 0 else 0)
    assert not has_home
    assert variables == ["TENON_CATALOG_BUCKET", "TENON_CLUSTER_NAME"]
