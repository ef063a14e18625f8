"""Changes that are held until those that belong to them have come."""

from __future__ import annotations

from types import SimpleNamespace

from tpumon.cli.commands import events
from tpumon.model import Change


def test_changes_are_not_held_for_longer_than_15_seconds_though_more_come(monkeypatch, capsys):
    """Where something changes every second, it is never quiet."""
    now_s = [100.0]
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(events, "_as_text", lambda change: change.status)
    printer = events._Printer("text", SimpleNamespace(status=lambda: SimpleNamespace(workers={})))
    change = Change(number=1, time_unix_s=1e9, worker="a", what="state", state="stale", severity="ok")
    for _ in range(17):
        printer.add([change])
        printer.print_due()
        now_s[0] += 1
    assert "stale" in capsys.readouterr().out
