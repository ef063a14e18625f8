"""The help of `--scenario`: the list of scenarios on the page of `tpumon simulate`, which other pages point to."""

from __future__ import annotations

from typing import Any

from tpumon.command_line.help_pages import CommandPage, write_rows

SCENARIO_HELP = "What the simulated job does; 'tpumon simulate --help' lists all."
TERM_HELP = "What the simulated job does: one of these, or several joined by +."

_TERM = "NAME[@START[+LENGTH]][:PARAMETER=VALUE,...]"


class SimulatePage(CommandPage):
    """The help of `tpumon simulate`, with every scenario."""

    def write_commands(self: Any, _context: Any, formatter: Any) -> None:
        """Writes the list of scenarios."""
        from tpumon.simulator.scenario.listing import listed  # here: only this page needs it

        rows = [(one.name, " ".join(f"{words}." for words in (one.about, *one.settings))) for one in listed()]
        rows.append((_TERM, "begins START seconds after the job and lasts LENGTH seconds."))
        write_rows(formatter, "Scenarios", rows, max(len(name) for name, _ in rows[:-1]))
