"""``bench``: what iriscw says about its own speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from iriscw.cli.groups import CommandGroup
from iriscw.cli.interrupts import as_interrupts
from iriscw.cli.outcome import CheckFailed, run_async
from iriscw.cli.output import emit, format_option, table, to_json, to_yaml


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure this installation."""


@bench.command(name="runtime")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="How often each figure is taken; default 7.")
@click.option("--floor-share", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Of the floors.")
@format_option
def bench_runtime(*, rounds: int | None, floor_share: float, form: str) -> None:
    """Compare the actor runtime with its peers, as ratios of one run.

    The exit code is 1 if a ratio is below its floor times --floor-share.
    """
    from iriscw.bench import runtime

    report = runtime.run(
        rounds if rounds is not None else runtime.ROUNDS, progress=lambda line: click.echo(line, err=True)
    )
    _write(report, form, lambda: ratios_table(report, runtime.FLOORS))
    found = runtime.below(report, floor_share)
    if found:
        raise CheckFailed("; ".join(found))


def ratios_table(report: Mapping[str, Any], floors: Mapping[str, Mapping[str, float]]) -> str:
    """Write the ratios with their floors."""
    rows = [
        [peer, test, f"{ratio:g}", f"{floors.get(peer, {}).get(test, 0) or '-'}"]
        for peer, ratios in report["ratios"].items()
        for test, ratio in ratios.items()
    ]
    missing = [peer for peer in floors if peer not in report["ratios"]]
    skipped = f"left out, since not installed: {', '.join(missing)}\n" if missing else ""
    heads = ["AGAINST", "TEST", "RATIO", "FLOOR"]
    return f"{table(heads, rows)}\n{report['bytes_per_idle_actor']} bytes per idle actor\n{skipped}"


@bench.command(name="control-plane")
@click.option("--quick", is_flag=True, help="Smaller sizes: seconds instead of minutes.")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="Runs of a figure in CPU time; default 3.")
@format_option
def bench_control_plane(*, quick: bool, rounds: int | None, form: str) -> None:
    """Count what the control plane does for a job, and take its CPU time.

    Counts are the same in every run. A target is what a peer's maintainers report of another machine, so missing
    one does not change the exit code.
    """
    from iriscw.bench import control_plane

    report = control_plane.run(
        lambda line: click.echo(line, err=True),
        control_plane.QUICK if quick else control_plane.FULL,
        rounds if rounds is not None else control_plane.ROUNDS,
    )
    _write(report, form, lambda: figures_table(report["figures"], report["targets"]))


@bench.command(name="end-to-end")
@click.option("--quick", is_flag=True, help="79 workers alone, instead of 1,000 and 5,000 as well.")
@format_option
def bench_end_to_end(*, quick: bool, form: str) -> None:
    """Take what a real controller costs: its journal on a disk, workers and a client in another process over gRPC.

    CPU time of the controller, alone, and how long its loop is busy at a time. Goals are for two cores that nobody
    shares, so missing one does not change the exit code.
    """
    from iriscw.bench import whole

    report = whole.run(lambda line: click.echo(line, err=True), whole.QUICK if quick else whole.FULL)
    _write(report, form, lambda: simulation_table(report["figures"], report["goals"]))


@bench.command(name="simulation")
@click.option("--quick", is_flag=True, help="Smaller fleets for a shorter time.")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="Runs of a figure in CPU time; default 3.")
@format_option
def bench_simulation(*, quick: bool, rounds: int | None, form: str) -> None:
    """Take the CPU time of simulated fleets that are busy, small and large, with all checks.

    Counts are the same in every run. Goals are for one fast core that nobody shares, so missing one does not change the
    exit code.
    """
    from iriscw.bench import simulation

    report = simulation.run(
        lambda line: click.echo(line, err=True),
        simulation.QUICK if quick else simulation.FULL,
        rounds if rounds is not None else simulation.ROUNDS,
    )
    _write(report, form, lambda: simulation_table(report["figures"], report["goals"]))


def simulation_table(figures: Mapping[str, Sequence[Mapping[str, float]]], goals: Mapping[str, float]) -> str:
    """Write a table for each group of figures, a column for each size, and the goals."""
    tables = "\n".join(_group_table(name, rows, ()) for name, rows in figures.items())
    wanted = ", ".join(f"{name} {value:g}" for name, value in goals.items())
    return f"{tables}\nGoals: {wanted}.\n"


@bench.command(name="pools")
@click.option("--quick", is_flag=True, help="10 and 50 pools: seconds instead of minutes.")
@format_option
def bench_pools(*, quick: bool, form: str) -> None:
    """Count what a slice costs the controller and the API over its life, a restart and a loss, at 50 to 5,000 pools.

    Counts are the same in every run. A goal is of requests alone, and its test is elsewhere, so missing one does not
    change the exit code.
    """
    from iriscw.bench import pools

    report = pools.run(lambda line: click.echo(line, err=True), pools.QUICK if quick else pools.FULL)
    _write(report, form, lambda: simulation_table(report["figures"], report["goals"]))


@bench.command(name="freeze")
@click.option("--quick", is_flag=True, help="3 and 64 MiB alone: seconds instead of minutes.")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="How often each is done; default 5.")
@format_option
def bench_freeze(*, quick: bool, rounds: int | None, form: str) -> None:
    """Freeze a process to RAM and thaw it, compared with CRIU alone and the same digests, at 64 MiB to 2 GiB.

    A process of 3 MiB is frozen by the command and by an agent, too. What a freeze and a thaw of 1 GiB take is told for
    both tiers. Needs CRIU, and the rights for it. A goal is for a
    machine with nothing else to do, so missing one does not change the exit code.
    """
    from iriscw.bench import freezing

    with as_interrupts():  # a process and its memory have to be given back
        report = run_async(
            freezing.run,
            lambda line: click.echo(line, err=True),
            freezing.QUICK_MIB if quick else freezing.FULL_MIB,
            rounds if rounds is not None else freezing.ROUNDS,
            0 if quick else freezing.PROMISED_MIB,
            freezing.SMALL_MIB,
        )
    _write(report, form, lambda: simulation_table(report["figures"], report["goals"]))


@bench.command(name="repository")
@click.option("--quick", is_flag=True, help="64 MiB of each kind of memory: seconds instead of minutes.")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="How often each is done; default 5.")
@format_option
def bench_repository(*, quick: bool, rounds: int | None, form: str) -> None:
    """Store a checkpoint of 512 MiB in a bucket on loopback and fetch it back, beside boto3 and obstore.

    A ratio is the peer's time by ours, of one round. Goals are for a machine with nothing else to do, so missing one
    does not change the exit code.
    """
    from iriscw.bench import repositories

    with as_interrupts():  # folders in memory have to be given back
        report = repositories.run(
            lambda line: click.echo(line, err=True),
            repositories.QUICK_MIB if quick else repositories.FULL_MIB,
            rounds if rounds is not None else repositories.ROUNDS,
        )
    _write(report, form, lambda: simulation_table(report["figures"], report["goals"]))


@bench.command(name="calls")
@click.option("--quick", is_flag=True, help="A tenth of the calls: seconds instead of minutes.")
@click.option("--rounds", type=click.IntRange(min=1), default=None, help="How often each is done; default 5.")
@format_option
def bench_calls(*, quick: bool, rounds: int | None, form: str) -> None:
    """Call a hosted actor in another process of this machine, beside xoscar.

    A ratio is the peer's time by ours, of one round. Goals are for a machine with nothing else to do, so missing one
    does not change the exit code.
    """
    from iriscw.bench import calls

    with as_interrupts():  # processes have to be ended
        report = calls.run(
            lambda line: click.echo(line, err=True), rounds if rounds is not None else calls.ROUNDS, quick=quick
        )
    _write(report, form, lambda: simulation_table(report["figures"], report["goals"]))


def figures_table(figures: Mapping[str, Sequence[Mapping[str, float]]], targets: Sequence[Mapping[str, float]]) -> str:
    """Write a table for each group of figures, a column for each size, with the targets in brackets."""
    tables = "\n".join(_group_table(name, rows, targets) for name, rows in figures.items())
    return f"{tables}\nIn brackets: targets, which a peer's maintainers report of another machine.\n"


def _group_table(name: str, rows: Sequence[Mapping[str, float]], targets: Sequence[Mapping[str, float]]) -> str:
    def written(figure: str, of: Mapping[str, float]) -> str:
        same = [each for each in targets if all(of.get(size) == each[size] for size in ("workers", "tasks"))]
        target = next((each[figure] for each in same if figure in each), None)
        text = _short(of[figure])
        return text if target is None or figure in ("workers", "tasks") else f"{text} ({target:g})"

    cells = [[figure, *(written(figure, of) for of in rows)] for figure in rows[0]]
    return table([name, *([""] * len(rows))], cells)


def _short(value: float) -> str:
    """Write a figure to four digits, and large ones whole."""
    return f"{round(value)}" if abs(value) >= 1_000 else f"{float(f'{value:.4g}'):g}"


def _write(report: Any, form: str, text: Any) -> None:
    written = to_json(report) if form == "json" else to_yaml(report) if form == "yaml" else text()
    emit(written)
