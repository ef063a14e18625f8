"""Levels 1 and 2 on a terminal: the live view, fed by the same samples as every other output."""

from __future__ import annotations

import codecs
import locale
import os
import re
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from tpumon.commands.monitor import MonitorSettings, feed, hand_over, is_found, open_exports
from tpumon.errors import NoTargetError
from tpumon.model import Sample, Workers
from tpumon.system.background import Background
from tpumon.view.display import Display
from tpumon.view.loop import live
from tpumon.view.notices import Notices


def run_live(settings: MonitorSettings) -> int:
    """Draws until the user quits, a signal comes, or there is nothing more to come.

    Raises:
        UsageError: an output cannot be had.
        NoTargetError: with `num_queries`, when nobody ever answered.
    """
    assert settings.display is not None
    ascii_only = settings.display.ascii or not (_is_utf_8(sys.stdout.encoding) and _is_utf_8(_terminal_encoding()))
    display = Display(replace(settings.display, ascii=ascii_only, from_url=_shown_url(settings)))
    with ExitStack() as stack:
        read_end, write_end = os.pipe()
        for end in (read_end, write_end):
            os.set_blocking(end, False)
            stack.callback(os.close, end)
        # What exports and finders say goes to stderr, and from there into the display while it has the terminal.
        exports = open_exports(settings, stack)
        background = stack.enter_context(
            Background[Workers | Sample](
                partial(feed, settings, exports), wake=partial(_wake, write_end), keep=is_found
            )
        )
        notices, dropped = Notices(), False

        def deliver(event: Workers | Sample) -> None:
            nonlocal dropped
            hand_over(event, [display])
            for line in notices.update(event):
                display.notice(line)
            if background.dropped and not dropped:
                dropped = True
                display.notice("samples are dropped, oldest first: this machine is too slow")

        ended = live.run(
            display, background.fetch, read_end, deliver=deliver, color=settings.color, ascii_only=ascii_only
        )
    if ended and not notices.answered:
        raise NoTargetError(notices.nobody_answered)
    return 0


def _terminal_encoding() -> str:
    """What the locale says the terminal understands.

    Python takes UTF-8 in the C locale, too: it writes whatever it is asked to, but LC_ALL=C asks for ASCII. A locale
    that is not installed here, as is usual over ssh, is the C locale as well, but its name tells.
    """
    named = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return "utf-8" if re.search(r"\.utf-?8\b", named, re.IGNORECASE) else locale.getencoding()


def _is_utf_8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name == "utf-8"
    except LookupError:
        return False


def _shown_url(settings: MonitorSettings) -> str | None:
    """The exporter that is shown, without the password to it."""
    if settings.from_url is None:
        return None
    from tpumon.remote import RemoteExporter

    return RemoteExporter(settings.from_url).name


def _wake(write_end: int) -> None:
    with suppress(BlockingIOError, OSError):
        os.write(write_end, b"\0")
