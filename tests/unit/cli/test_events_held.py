"""Changes that are held until those that belong to them have come."""

from __future__ import annotations

from types import SimpleNamespace

from msgspec.structs import replace

from tpumon.analysis import FleetStatus
from tpumon.cli.commands import events
from tpumon.model import Change, Target


def test_changes_are_not_held_for_longer_than_15_seconds_though_more_come(monkeypatch, capsys):
    """Where something changes every second, it is never quiet."""
    now_s = [100.0]
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    printer = events._Printer("text", SimpleNamespace(status=lambda: FleetStatus(time_unix_s=0.0)))
    change = Change(number=1, time_unix_s=1e9, worker="a", what="state", state="stale", severity="ok")
    for _ in range(17):
        printer.add([change])
        printer.print_due()
        now_s[0] += 1
    assert "stale" in capsys.readouterr().out


def test_what_a_slice_has_is_held_until_all_its_workers_were_sampled(monkeypatch, capsys):
    """One is asked 8 s after another: a hang of both is one line."""
    now_s = [100.0]
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(events, "date_and_time", lambda _: "then")
    targets = [Target(worker=name, address=f"{name}:1", slice="s") for name in "ab"]
    workers = {one.worker: SimpleNamespace(target=one) for one in targets}
    asked = []
    status = lambda: asked.append(1) or FleetStatus(time_unix_s=0.0, workers=workers)  # noqa: E731
    printer = events._Printer("text", SimpleNamespace(status=status))
    change = Change(
        number=1, time_unix_s=1e9, worker="a", what="severity", state="no-activity", severity="critical",
        words="waits for b, no activity seen for 606 s",
    )  # fmt: skip
    printer.add([], SimpleNamespace(worker="b"))
    printer.add([change], SimpleNamespace(worker="a"))
    for passed_s, printed in ((5, ""), (3, "")):
        now_s[0] += passed_s
        printer.print_due()
        assert capsys.readouterr().out == printed
    assert len(asked) == 1  # not at each look: of thousands of workers it takes long
    printer.add(
        [replace(change, worker="b", words="b stopped first, no activity seen for 610 s")], SimpleNamespace(worker="b")
    )
    now_s[0] += 4
    printer.print_due()
    assert (
        capsys.readouterr().out == "then  all 2 workers of s  critical: b stopped first, no activity seen for 610 s\n"
    )


def test_a_worker_that_goes_away_is_held_until_its_restart_or_15_seconds(monkeypatch, capsys):
    """A quick restart is one line, and not two of which the first is alarming."""
    now_s = [100.0]
    monkeypatch.setattr(events, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(events, "date_and_time", lambda _: "then")
    target = Target(worker="a", address="a:1")
    status = FleetStatus(time_unix_s=0.0, workers={"a": SimpleNamespace(target=target)})
    down = Change(number=1, time_unix_s=1e9, worker="a", what="state", state="down", severity="critical", before="ok")
    restart = replace(down, number=2, time_unix_s=1e9 + 5, what="restart", state="live", severity="ok")
    for later, printed in (((restart,), "then  a  job restarted\n"), ((), "then  a  down\n")):
        printer = events._Printer("text", SimpleNamespace(status=lambda: status))
        printer.add([down], SimpleNamespace(worker="a"))
        for changes, passed_s, out in (((), 6, ""), (later, 10, printed)):
            now_s[0] += passed_s - 4
            printer.add(changes, SimpleNamespace(worker="a"))
            now_s[0] += 4
            printer.print_due()
            assert capsys.readouterr().out == out
