"""python xprof_tool.py TOOL FILE...: what XProf shows of these traces, as JSON on stdout. Writes beside the traces."""

from __future__ import annotations

import sys

from xprof.convert import raw_to_tool_data

tool, *files = sys.argv[1:]
data, _ = raw_to_tool_data.xspace_to_tool_data(files, tool, {})
if data is None:
    sys.exit(f"XProf has no {tool} for {files}")
sys.stdout.write(data.decode() if isinstance(data, bytes) else data)
