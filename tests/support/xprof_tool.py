"""python xprof_tool.py TOOL,... OPTIONS FILE...: what XProf shows of traces, as a list in JSON. Writes beside them."""

from __future__ import annotations

import json
import sys

from xprof.convert import raw_to_tool_data

tools, options, *files = sys.argv[1:]
shown = []
for tool in tools.split(","):
    if tool == "memory_viewer":
        raw_to_tool_data.xspace_to_tool_names(files)  # writes the HLO that it reads
    data, _ = raw_to_tool_data.xspace_to_tool_data(files, tool, json.loads(options))
    if data is None:
        sys.exit(f"XProf has no {tool} for {files}")
    shown.append(data.decode() if isinstance(data, bytes) else data)
sys.stdout.write(f"[{','.join(shown)}]")
