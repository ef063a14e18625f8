"""The commands that show no live samples: of files, of this host, and of tpumon itself."""

from functools import partial
from typing import Annotated, Literal, cast

import typer
from typer.core import TyperGroup

from tpumon.cli import completion as completing
from tpumon.cli.group import ENVIRONMENT
from tpumon.cli.options import FORMATS, Command, FormatOption, TargetOptions, option, with_groups, written
from tpumon.cli.report_options import ReportOptions, report_settings
from tpumon.cli.resolve import report_format, selection_of
from tpumon.simulator.simulator_settings import DEFAULT_PORT, SimulatorSettings

app = typer.Typer()
command = partial(app.command, context_settings=ENVIRONMENT)


def _scenarios() -> str:
    """The list of scenarios, for `tpumon simulate --help`."""
    from tpumon.simulator.scenario.fault_table import PARAMETERS, listed

    rows = [f"{one.name}: {'. '.join((one.about, *one.settings))}." for one in listed()]
    term = "NAME[@START[+LENGTH]][:PARAMETER=VALUE,...] begins START after the job, such as 5m, and ends LENGTH later."
    parameters = [f"{name}: {parameter.about}." for name, parameter in PARAMETERS.items()]
    text = "\n".join(["Scenarios:", *rows, "", term, "", "Parameters:", *parameters])
    return text.replace("[", "\\[")  # or it would be markup


@command("simulate", epilog=_scenarios())
def simulate_command(
    topology: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY",
            autocompletion=completing.topologies,
            help="Such as v2-8, v3-32, v4-16, v5e-8, v5p-128 or v6e-256.",
        ),
    ],
    scenario: Annotated[
        str,
        option(
            metavar="TERM+TERM",
            autocompletion=completing.scenarios,
            help="What the simulated job does: one of those below, or several joined by +.",
        ),
    ] = "steady",
    monitor: Annotated[bool | None, option(help="Whether the Monitor RPC answers. Default: only on v2 and v3.")] = None,
    seed: Annotated[int, option(metavar="N", help="The same seed makes the same job.")] = 0,
    port: Annotated[
        int, option(min=1, max=65535, metavar="PORT", help="Port of worker 0; worker i listens on PORT + i.")
    ] = DEFAULT_PORT,
    server: Annotated[Literal["old", "2025", "new"], option(help="Generation of the profiler server.")] = "new",
) -> Command:
    """Run a simulated TPU until stopped.

    Each worker has a real profiler server, and a runtime metric service.

    Examples:
      tpumon simulate v5e-8
      tpumon simulate v3-32 --scenario straggler --port 9000
      tpumon simulate v5e-16 --scenario slow-down@5m+10m:by=10%+jitter
    """
    from tpumon.cli.commands import simulate

    settings = SimulatorSettings(
        topology=topology, scenario=scenario, monitor=monitor, seed=seed, port=port, server=server
    )
    return partial(simulate.run, settings)


@command("analyze")
def analyze_command(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|DIR", help="*.xplane.pb files, session directories, or log directories (newest session)."
        ),
    ],
    output: FormatOption = "text",
) -> Command:
    """Show the figures of saved profiles.

    For each host, and for all hosts together.

    Examples:
      tpumon analyze /tmp/profiles
      tpumon analyze host1.xplane.pb host2.xplane.pb --output json
    """
    from tpumon.cli.commands import analyze

    return partial(analyze.run, paths=paths, output=report_format(context, output, FORMATS))


@command("report")
@with_groups
def report_command(
    context: typer.Context,
    targets: TargetOptions,
    options: ReportOptions,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE|DIR", help="As for analyze. Without it, a profile is taken of the workers named."),
    ] = None,
) -> Command:
    """Show the tables of a profile: operations, steps, where the time goes.

    XProf's pages as text, Markdown, JSON or one HTML page. Reads saved
    profiles, or takes one of the workers that --service-addr, --tpu, --targets
    or --simulate name; it is not kept.

    Examples:
      tpumon report /tmp/profiles
      tpumon report /tmp/profiles --section ops --top 50 --filter attention
      tpumon report --service-addr 10.0.0.2:9999 --output json
      tpumon report new/ --against old/ --fail-above 5%
    """
    from tpumon.cli.commands import report

    return partial(report.run, report_settings(context, targets, options, paths or ()))


@command("export")
def export_command(
    recording: Annotated[
        str, typer.Argument(metavar="DIR|FILE", autocompletion=completing.recordings, help="What --record wrote.")
    ],
    to: Annotated[str, written(metavar="FILE.parquet", help="The file to write.")],
) -> Command:
    r"""Export recorded samples to a Parquet file.

    One row per query and worker, with the columns of CSV. Needs the extra
    `parquet`; where it lacks, tpumon says how to install it.

    Examples:
      tpumon export recorded/ --to samples.parquet
    """
    from tpumon.cli.commands import export

    return partial(export.run, recording=recording, to=to)


@command("doctor")
@with_groups
def doctor_command(context: typer.Context, targets: TargetOptions, output: FormatOption = "text") -> Command:
    """Check chips, ports and servers, and say what is wrong.

    Shows what is here, what answers, and what tpumon would use. The output is
    safe to paste into an issue.

    Examples:
      tpumon doctor
      tpumon doctor --service-addr 10.0.0.2:9999
    """
    from tpumon.cli.commands.doctor import command as doctor

    return partial(
        doctor.run,
        where=selection_of(context, targets, level=2),
        output=report_format(context, output, FORMATS),
        use_proxy=targets.use_proxy,
    )


@command("pause")
def pause_command(
    duration: Annotated[
        str,
        typer.Argument(metavar="DURATION", help="Such as 90s, 10m or 1.5h; seconds without a unit. 0 ends your pause."),
    ],
) -> Command:
    """Stop all sampling on this host for a while.

    Use it before you profile the job yourself: your call fails if it meets a
    sample.

    Examples:
      tpumon pause 10m
      tpumon pause 0
    """
    from tpumon.cli.commands import pause

    return partial(pause.run, pause.parse_duration(duration))


@app.command("run", context_settings={**ENVIRONMENT, "allow_interspersed_args": False})
def run_command(
    program: Annotated[list[str], typer.Argument(metavar="PROGRAM", help="What to run; its own options follow it.")],
    port: Annotated[
        int | None,
        option(
            min=1,
            max=65535,
            metavar="N",
            help="Port of the profiler server. Default: 9999. If it is in use: the next free one.",
        ),
    ] = None,
    monitor: Annotated[bool, option("--monitor", help="Print the job's figures on stderr.")] = False,
    monitor_file: Annotated[str | None, option(metavar="FILE", help="Write the job's figures into this file.")] = None,
) -> Command:
    """Run a program, unchanged, with the profiler server of its framework.

    The program gets the server when it first uses JAX, TensorFlow or
    PyTorch/XLA, and tpumon finds it there. Its own traces wait for samples, so
    that no sample can break one. TPUMON_ATTACH=0 switches this off.

    Examples:
      tpumon run python train.py
      tpumon run --port 9001 -- python -m trainer --steps 1000
    """
    from tpumon.cli.commands import run

    return partial(run.run, program=program, port=port, monitor=monitor, monitor_file=monitor_file)


@command("config")
def config_command(context: typer.Context) -> Command:
    """Show the options in force, and where each comes from.

    An option can stand on the command line (--interval 5), in the environment
    (TPUMON_INTERVAL=5), or in a file (interval = 5). The first of these wins. The
    file is ~/.config/tpumon/config.toml, or the one that TPUMON_CONFIG names; the
    options of one command stand in a table of its name. The output has its form.

    Examples:
      tpumon config                          its output is a file to begin with
    """
    from tpumon.cli.commands import config

    return partial(config.run, context=context, group=cast("TyperGroup", context.find_root().command))


@command("completion")
def completion_command(
    context: typer.Context, shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Your shell.")]
) -> Command:
    """Print a script that makes a shell complete commands, options and values.

    To install it for the shell that you are in: tpumon --install-completion.

    Examples:
      tpumon completion bash         append it to ~/.bashrc
      tpumon completion zsh          append it to ~/.zshrc
      tpumon completion fish         save it in ~/.config/fish/completions/
    """

    def print_script() -> int:
        completing.print_script(shell, lambda: context.find_root().command(args=[], prog_name="tpumon"))
        return 0

    return print_script
