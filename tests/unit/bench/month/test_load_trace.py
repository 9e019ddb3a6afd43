"""Traces as CSV: good rows, bad rows with line and column, and files that are no traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.month import load_generator, load_trace
from bench.month.load_trace import TraceError, TracePod

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"


def _file(tmp_path: Path, *lines: str, head: str = _HEAD) -> Path:
    path = tmp_path / "pods.csv"
    path.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    return path


def test_a_pod_list_of_alibaba_is_read_as_it_is(tmp_path: Path) -> None:
    path = _file(
        tmp_path,
        "pod-b,6000,12288,1,460,,LS,Running,100,200,101",
        "pod-a,12500,65536,0,0,,LS,Pending,50,90,",
    )
    trace = load_trace.read(path)
    assert trace.problems == ()
    assert trace.pods == (
        TracePod(name="pod-a", cpu=12_500, memory=65_536, gpus=0, created=50, deleted=90),
        TracePod(name="pod-b", cpu=6000, memory=12_288, gpus=1, created=100, deleted=200),
    )


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("p,fast,1,0,,,,,0,9,", "line 3, column cpu_milli: 'fast' isn't a whole number"),
        ("p,1,,0,,,,,0,9,", "line 3, column memory_mib: '' isn't a whole number"),
        ("p,1,1,-1,,,,,0,9,", "line 3, column num_gpu: -1 is less than 0"),
        ("p,1,1,0,,,,,9,9,", "line 3, column deletion_time: 9 isn't after creation_time 9"),
        ("p,1,1,0,,,,,1.5,9,", "line 3, column creation_time: '1.5' isn't a whole number"),
        (",1,1,0,,,,,0,9,", "line 3, column name: it is empty"),
        ("good,1,1,0,,,,,0,9,", "line 3, column name: good is the name of an earlier row too"),
    ],
)
def test_a_bad_row_is_left_out_with_line_and_column(tmp_path: Path, row: str, problem: str) -> None:
    path = _file(tmp_path, "good,1,1,0,,,,,0,9,", row, "after,1,1,0,,,,,0,9,")
    trace = load_trace.read(path)
    assert [p.name for p in trace.pods] == ["after", "good"]
    assert trace.problems == (f"{path}: {problem}",)


def test_a_workload_of_an_unknown_kind_is_a_problem_of_its_row(tmp_path: Path) -> None:
    head = "name,cpu_milli,memory_mib,num_gpu,creation_time,deletion_time,workload"
    path = _file(tmp_path, "a,1,1,0,0,9,Deployment/web/1", "b,1,1,0,0,9,web", "c,1,1,0,0,9,", head=head)
    trace = load_trace.read(path)
    assert [p.workload for p in trace.pods] == ["Deployment/web/1", ""]
    assert [p.partition("line ")[2] for p in trace.problems] == [
        "3, column workload: 'web' is neither Deployment/NAME/REVISION nor Job/NAME"
    ]


def test_many_bad_rows_are_counted(tmp_path: Path) -> None:
    trace = load_trace.read(_file(tmp_path, *[f"p{i},x,1,0,,,,,0,9," for i in range(50)]))
    assert trace.pods == ()
    assert len(trace.problems) == 21
    assert trace.problems[-1].endswith("30 more rows have errors")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,cpu_milli,memory_mib,num_gpu,creation_time\n", "no column deletion_time"),
        ("", "no column name, cpu_milli"),
    ],
)
def test_a_file_without_a_required_column_is_no_trace(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TraceError, match=message):
        load_trace.read(path)


def test_a_file_that_cannot_be_read_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        load_trace.read(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="not CSV"):
        load_trace.read(binary)


@pytest.mark.parametrize("load", list(load_generator.LOADS))
def test_a_written_load_is_read_again_unchanged(tmp_path: Path, load: str) -> None:
    trace = load_generator.generate(load, seed=1, seconds=load_generator.DAY)
    path = tmp_path / "load.csv"
    load_trace.write(trace, path)
    assert load_trace.read(path) == trace


def test_a_window_has_the_pods_that_exist_in_it_with_times_since_its_start(tmp_path: Path) -> None:
    rows = [
        "before,1,1,0,,,,,0,100,",
        "across,1,1,0,,,,,50,150,",
        "within,1,1,0,,,,,120,130,",
        "after,1,1,0,,,,,200,300,",
    ]
    window = load_trace.read(_file(tmp_path, *rows)).window(100, 100)
    assert [(p.name, p.created, p.deleted) for p in window.pods] == [("across", 0, 50), ("within", 20, 30)]
