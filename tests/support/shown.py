"""Workers in every state, and what a display shows of them."""

from __future__ import annotations

from rich.cells import cell_len

from support.samples import changed, failed_sample, sample
from support.wired import Wired
from tpumon.collection.sources import titles
from tpumon.model import Spread, StepTimes, Target, Workers
from tpumon.outputs import OutputSettings
from tpumon.outputs.live.display import Display
from tpumon.outputs.live.view_settings import DisplaySettings

NOW = 1_767_268_800.0
INTERVAL_S = 10.0


def name_of(i):
    return f"tpu-worker-{i}"


def answered(worker, time_unix_s=NOW, **figures):
    """A present sample with every figure; `figures` replaces some."""
    usual = sample(
        worker,
        time_unix_s=time_unix_s,
        window_s=0.5,
        took_s=0.8,
        interval_s=INTERVAL_S,
        traced_s=0.19,
        device_type="TPU v5 Lite",
        cores=4,
        mxu_utilization_ratio=0.453,
        mxu_method="counter",
        idle_ratio=0.125,
        step_time_s=StepTimes(avg=0.0627, min=0.062, max=0.0634, count=8),
        step_source="steps",
        infeed_ratio=Spread(avg=0.018, min=0.0166, max=0.0192),
        step_parts_s={"high_flops_compute": 0.04, "infeed": 0.001, "idle": 0.01},
        per_core=tuple({"chip": i, "core": 0, "idle_ratio": 0.1, "step_time_s": 0.0627} for i in range(4)),
        devices=tuple({"device": str(i), "hbm_used_bytes": 9 << 30, "hbm_total_bytes": 16 << 30} for i in range(4)),
        runtime={"uptime_s": 3600.0},
    )
    return changed(usual, **figures)


def infeed(ratio):
    """The figure of a step that waits for input for this share of it."""
    return {"infeed_ratio": Spread(avg=ratio, min=ratio, max=ratio)}


def failed(worker, reason="unavailable", message="connection refused", time_unix_s=NOW, **more):
    return failed_sample(
        worker, reason, message, **({"time_unix_s": time_unix_s, "window_s": 0.5, "interval_s": INTERVAL_S} | more)
    )


class Shown(Wired):
    """A display behind an analysis that looks at the time before each refresh, as a feed does each second."""

    def __init__(self, settings: DisplaySettings) -> None:
        settings_of_run = OutputSettings(thresholds=settings.thresholds)
        super().__init__(lambda context: Display(settings, context.analysis), settings=settings_of_run)

    def refresh(self, now_unix_s: float) -> None:
        """As `Display.refresh`."""
        update = self.fleet.tick(now_unix_s)
        if update is not None:
            self.output.on_update(update)
        self.output.refresh(now_unix_s)


def empty_display(**settings):
    """A display that knows of no worker yet."""
    return Shown(DisplaySettings(**settings))


def display_of(*samples, now=NOW, workers=None, **settings):
    """A display that got these samples; the workers are those of the samples, or as named."""
    display = empty_display(**({"sources": titles()} | settings))
    names = workers if workers is not None else list(dict.fromkeys(each.worker for each in samples))
    display.add(Workers(targets=tuple(Target(worker=name, address=f"{name}:8466") for name in names)))
    display.add(*samples)
    display.refresh(now)
    return display


def fleet(count, **figures):
    return [answered(name_of(i), **figures) for i in range(count)]


def lines(display, width=100, height=30, now=NOW, *, faulty=False):
    """The screen as text; nothing on it is wider or higher than it may be, and only a faulty screen raises."""
    drawn = display.render(width, height, now)
    assert len(drawn) <= height
    texts = ["".join(segment.text for segment in line) for line in drawn]
    for text in texts:
        assert cell_len(text) <= width, text
        assert "\n" not in text
    assert faulty or "Cannot show" not in " ".join(texts), texts
    return texts


def screen(display, width=100, height=30, now=NOW, *, faulty=False):
    return "\n".join(lines(display, width, height, now, faulty=faulty))


def press(display, *keys):
    return [display.press(key) for key in keys][-1]
