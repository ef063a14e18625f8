"""Everything that a screen is drawn from."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from tpumon.analysis import WorkerStatus
from tpumon.model.progress import Progress
from tpumon.outputs.drawing.style import Glyphs
from tpumon.outputs.live.parts.controls import Controls
from tpumon.outputs.live.parts.notes import Message
from tpumon.outputs.live.parts.scene import Scene
from tpumon.outputs.live.view_settings import DisplaySettings, KeySection


class Frame(Struct, frozen=True, kw_only=True):
    """Everything that a screen is drawn from.

    Attributes:
        controls: what the user has chosen.
        settings: the settings of the view.
        scene: the fleet at the time that is shown.
        rows: its workers in the chosen order, without those that the filter hides.
        width: cells in a line.
        height: lines that the screen may use.
        glyphs: characters for graphs and ornaments.
        clock_unix_s: wall-clock time.
        from_url: the exporter that samples come from; None: the workers themselves.
        progress: what this process does about each worker; None: it takes no samples.
        recorded: of a recording, how it is played; stands in place of LIVE.
        messages: recent messages, the newest last.
        keys: every key, for the help screen.
    """

    controls: Controls
    settings: DisplaySettings
    scene: Scene
    rows: Sequence[WorkerStatus]
    width: int
    height: int
    glyphs: Glyphs
    clock_unix_s: float
    from_url: str | None = None
    progress: Progress | None = None
    recorded: str = ""
    messages: Sequence[Message] = ()
    keys: Sequence[KeySection] = ()

    @property
    def level(self) -> int:
        """1 or 2: how much is shown."""
        return self.settings.level

    @property
    def seen(self) -> frozenset[str]:
        """Keys of the figures that any worker has had."""
        return self.scene.seen

    @property
    def now_unix_s(self) -> float:
        """Wall-clock time; while the picture is frozen, the time it shows."""
        return self.scene.time_unix_s if self.controls.frozen else self.clock_unix_s

    @property
    def opened_row(self) -> WorkerStatus | None:
        """The worker whose page is open, if it is still there."""
        return self.scene.row(self.controls.opened)
