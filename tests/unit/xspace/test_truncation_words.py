"""Notices of profilers: which ones say that events were lost. Who lost them is no count, and 0 is no loss."""

from __future__ import annotations

import random

import pytest

from support.truncated import whole
from tpumon.xspace.host_totals import read_host_totals
from tpumon.xspace.trace_figures import figures_of_hosts

LOST = """
the trace of /device:TPU:0 is truncated, 48211 events dropped
TPU:0 truncated
TPU:0 dropped 48211 events
TPU:0 dropped 48211
TPU 0 core 1: lost 12 trace entries
Chip 0 trace truncated
host 0 lost 5 events
worker-0 discarded 1,024 events
dropped events: 0 on TPU:1, 500 on TPU:2
0 events dropped on TPU:0 and 500 on TPU:2
dropped: 0 on TPU:1, 500 on TPU:2
Dropped events per device: TPU:0: 0; TPU:1: 500
dropped events: core 0: 0, core 1: 500
no events were lost on TPU:0, 12 events were lost on TPU:1
500 events were discarded
12,000 trace entries have been overwritten
dropped_events=48211
Dropped events = 7
events dropped: 48211 (limit 1000000)
dropped: 48211
12% of the events were dropped
dropped 3 of 5000 events
3/5000 events dropped
lost 2.5 MB of trace data
trace truncated to 64 MB
the trace was truncated after 200 ms
XLA trace buffer is full, events were dropped
the buffer was full
Trace buffers filled; dropped 3
truncated: 12 chunks lost
Trace buffer overflow
buffer 0 of core 0 overflowed
line 0: 1 event lost
cores 0 and 1: 17 events lost
events were lost on cores 0, 17 events in all
12:30:05 dropped 4 events
Some events may have been dropped
Not all events fit and some were dropped
the timeline of TPU:3 is incomplete
trace event loss detected
Trace Buffers Dropped
Dropped 15 device trace events because the buffer (size 1000000) was full
Device 3: 1000000 events recorded, 17 dropped
host tracer: dropped 12 (0.1%) of 12345 events
dropped_events=0 lost_chunks=5
XSpace of 2.1 GB exceeds the limit, truncating
Ring buffer wrapped; oldest events overwritten
connection lost; 40 events dropped
TPU:0 SparseCore 1: 5 events evicted from the ring buffer
"""

WHOLE = """
0 events dropped
no host events were lost
Dropped events = 0
dropped_events=0
dropped: 0
nothing was dropped
none dropped
zero events dropped
events weren't dropped
No events were dropped on TPU:0
TPU:12 dropped 0 events
host 7 lost 0 events
0 events dropped on 4 cores
TPU:0 dropped 0, 500 recorded
0 events lost on cores 2 and 3
0 of 5000 events dropped (0%)
0/5000 events were discarded
dropped events: 0 on TPU:1, 0 on TPU:2
12:30:05 dropped 0 events in 200 ms
line 14: 0 events overwritten
no trace was truncated, no buffer was full
the trace buffer is not full
no buffers overflowed
gradient overflow
int32 overflow in op add.3
gradient overflow at step 12, 3 times
Connection lost
connection to worker 3 lost
TPU:0 lost
worker 3 dropped out of the pool
host 4 dropped out of the pool after 3 attempts
dropout 0.1
no events lost on TPU:0, core 1 recorded 500 events
dropped events: core 0: 0, core 1: 0
Device 3: 1000000 events recorded, 0 dropped
host tracer: dropped 0 (0.0%) of 12345 events
0 events dropped on TPU:12, core 3, line 7, step 88
/device:TPU:3 SparseCore 1: 0 events dropped, 0 lost
profile data lost: 0 bytes
step 12 lost 3 samples
the trace buffer was nearly full
training loss 2.5
loss scale dropped to 1024
Throughput dropped from 500 to 300 events/s
to avoid dropped events, take a shorter window
if the buffer is full, events are dropped
the network lost 3 packets
kernel name truncated
3 events recorded
TPU v6e: 4 cores traced
"""


def rows(table):
    return table.strip().splitlines()


@pytest.mark.parametrize(
    ("notice", "lost"), [*((row, True) for row in rows(LOST)), *((row, False) for row in rows(WHOLE))]
)
def test_notices(notice, lost):
    trace = whole(random.Random(5), dispatches=True)
    trace.space.warnings.append(notice)
    found = figures_of_hosts([read_host_totals(trace.space.SerializeToString())])
    assert bool(found.truncated) is lost, found.truncated
    assert notice in [warning.message for warning in found.warnings if warning.code == "profiler"]
