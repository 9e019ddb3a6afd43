"""The flags of Cluster Autoscaler, as they are written in Deployments, become options of Tenon or say what happens."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cli.migrate import flag_notes, flags
from cli.migrate.flags import Flag, FlagResult, Translation
from shared.node_groups import options

ENABLED = "k8s.io/cluster-autoscaler/enabled"
CHART = [
    "./cluster-autoscaler",
    "--cloud-provider=aws",
    "--namespace=kube-system",
    f"--node-group-auto-discovery=asg:tag={ENABLED},k8s.io/cluster-autoscaler/prod",
    "--logtostderr=true",
    "--stderrthreshold=info",
    "--v=4",
]
"""What the Helm chart runs with autoDiscovery.clusterName=prod and no other value."""
TUNED = [
    *CHART,
    "--expander=priority,least-nodes,least-waste",
    "--balance-similar-node-groups",
    "--skip-nodes-with-local-storage=false",
    "--skip-nodes-with-system-pods=0",
    "--scale-down-unneeded-time=5m0s",
    "--scale-down-utilization-threshold=.65",
    "--scale-down-delay-after-add=90s",
    "--max-node-provision-time",
    "20m",
    "--max_nodes_total=100",
    "--max-scale-down-parallelism=4",
    "--max-graceful-termination-sec=$(GRACE)",
    "--ignore-daemonsets-utilization",
    "--new-pod-scale-up-delay=30s",
    "--max-total-unready-percentage=45",
    "--scale-down-unneeded-time=7m",
    "--frobnicate=yes",
    "--nodes=1:5:first",
    "--nodes=0:3:second",
]


def translated(*arguments: str, **environment: str) -> Translation:
    return flags.translate(flags.read(arguments, environment))


def outcomes(translation: Translation) -> dict[str, FlagResult]:
    return {result.flag.name: result for result in translation.results}


def test_the_charts_own_flags_mean_nothing_to_tenon_but_the_choice_of_groups() -> None:
    translation = translated(*CHART)
    assert translation.options == {}
    assert translation.discoveries == ({ENABLED: None, "k8s.io/cluster-autoscaler/prod": None},)
    assert (translation.named, translation.obstacles, translation.invisible) == ((), (), "")
    assert {name: result.outcome for name, result in outcomes(translation).items()} == dict.fromkeys(
        ("cloud-provider", "namespace", "logtostderr", "stderrthreshold", "v"), "no meaning"
    )
    assert all(result.note for result in translation.results)


def test_a_tuned_deployment_keeps_what_tenon_has_and_names_what_differs() -> None:
    translation = translated(*TUNED, GRACE="120")
    assert translation.options == {
        "expander": "priority,least-waste",
        "skip-nodes-with-local-storage": "false",
        "skip-nodes-with-system-pods": "false",
        "scale-down-unneeded-time": "7m",
        "scale-down-utilization-threshold": "0.65",
        "scale-down-delay-after-add": "90s",
        "max-node-provision-time": "20m",
        "max-nodes-total": "100",
        "max-empty-bulk-delete": "4",
        "max-graceful-termination-sec": "120",
        "ignore-daemonsets-utilization": "true",
    }
    read, problems = options.parse(translation.options, {})
    assert problems == ()
    assert (read.scale_down_unneeded_time, read.scale_down_utilization_threshold) == (timedelta(minutes=7), 650)
    assert (read.max_nodes_total, read.max_empty_bulk_delete, read.ignore_daemonsets_utilization) == (100, 4, True)
    found_outcomes = outcomes(translation)
    assert found_outcomes["balance-similar-node-groups"].outcome == "different"
    assert found_outcomes["new-pod-scale-up-delay"].outcome == "different"
    assert found_outcomes["max-total-unready-percentage"].outcome == "no meaning"
    assert found_outcomes["frobnicate"].outcome == "unknown"
    assert "least-nodes" in found_outcomes["expander"].note
    assert [group.name for group in translation.named] == ["first", "second"]
    assert (translation.named[0].minimum, translation.named[0].maximum) == (1, 5)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--a=b=c"], [Flag("a", "b=c")]),
        (["--scale-down-enabled", "false"], [Flag("scale-down-enabled", "true")]),
        (["--expander", "price", "--v=1"], [Flag("expander", "price"), Flag("v", "1")]),
        (["-v", "4", "-v=5", "-v6"], [Flag("v", "4"), Flag("v", "5"), Flag("v", "6")]),
        (["--unknown", "--v=1"], [Flag("unknown", "true"), Flag("v", "1")]),
        (["--expendable-pods-priority-cutoff", "-5"], [Flag("expendable-pods-priority-cutoff", "-5")]),
        (["--v=1", "--", "--v=2"], [Flag("v", "1")]),
        (["--max-nodes-total"], [Flag("max-nodes-total", "true")]),
        ([], []),
    ],
)
def test_arguments_are_read_as_cluster_autoscaler_reads_them(arguments: list[str], expected: list[Flag]) -> None:
    assert list(flags.read(["./cluster-autoscaler", *arguments], {})) == expected


@pytest.mark.parametrize(
    ("argument", "outcome", "note"),
    [
        ("--expander=least-nodes", "different", "the cheapest"),
        ("--expander=random", "kept", "random is as price"),
        ("--max-nodes-total=many", "different", "Tenon's default holds"),
        ("--scale-down-utilization-threshold=1.5", "different", "Tenon's default holds"),
        ("--scale-down-unneeded-time=$(TIME)", "different", "is not a duration"),
        ("--node-group-backoff-reset-timeout=3h0m0s", "no meaning", "the same"),
        ("--groups=a", "unknown", "ignores it"),
        ("--scale-down-mode=consolidation", "unknown", "ignores it"),
    ],
)
def test_one_flag_becomes(argument: str, outcome: str, note: str) -> None:
    (result,) = translated(argument).results
    assert (result.outcome, note in result.note) == (outcome, True), result


def test_both_names_of_a_flag_leave_the_older_one() -> None:
    translation = translated("--max-scale-down-parallelism=9", "--max-empty-bulk-delete=3")
    assert translation.options == {"max-empty-bulk-delete": "3"}


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        ("--cloud-provider=gce", "cloud provider gce"),
        ("--nodes=1:first", "MIN:MAX:NAME"),
        ("--nodes=a:b:first", "MIN:MAX:NAME"),
        ("--node-group-auto-discovery=mig:namePrefix=a,min=0,max=3", "asg:tag"),
        ("--node-group-auto-discovery=asg:tag=,", "asg:tag"),
    ],
)
def test_what_would_leave_groups_without_an_autoscaler_is_an_obstacle(argument: str, text: str) -> None:
    (obstacle,) = translated(argument).obstacles
    assert text in obstacle


@pytest.mark.parametrize(
    ("arguments", "invisible"),
    [
        (["--leader-elect=false"], "--leader-elect=false"),
        (["--namespace=autoscaling"], "--namespace=autoscaling"),
        (["--leader-elect-resource-name=mine"], "--leader-elect-resource-name=mine"),
        (["--leader-elect", "--namespace=kube-system"], ""),
    ],
)
def test_a_lease_elsewhere_is_named(arguments: list[str], invisible: str) -> None:
    assert translated(*arguments).invisible == invisible


def test_no_flag_is_described_twice() -> None:
    described = [flag_notes.WITHOUT_MEANING.keys(), flag_notes.DIFFERENT.keys(), flag_notes.RENAMED.keys()]
    described.append(options.FLAGS.keys())
    assert sum(map(len, described)) == len(set().union(*described))
    booleans = {name for name in options.FLAGS if options.FLAGS[name] is options.FLAGS["scale-down-enabled"]}
    assert booleans <= flag_notes.BOOLEAN
