"""Stand-ins for NVIDIA's driver and profiling library, which note every call made to them."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

_NAMES = re.compile(rb"\0(cu(?:pti)?[A-Z][A-Za-z0-9_]{2,60})(?=\0)")
_SOURCE = """\
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
static void note(const char *name) {
    int file = open("%s", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file >= 0) { write(file, name, strlen(name)); write(file, "\\n", 1); close(file); }
}
__attribute__((constructor)) static void loaded(void) { note("load:%s"); }
"""
_COUNT = "cuDeviceGetCount"
_COUNT_ONE = f'int {_COUNT}(int *count) {{ note("{_COUNT}"); *count = 1; return 0; }}\n'


class GpuStandIns:
    """libcuda.so.1 and libcupti.so.12 in a directory for LD_LIBRARY_PATH.

    Every function that a plugin names is there, notes its call and reports success; there is one GPU.

    Args:
        directory: to build them in.
        plugin: the library whose calls are to be seen.
    """

    def __init__(self, directory: Path, plugin: Path) -> None:
        self.directory = directory
        self._log = directory / "calls"
        names = {name.decode() for name in _NAMES.findall(plugin.read_bytes())}
        for library, of_cupti in (("libcuda.so.1", False), ("libcupti.so.12", True)):
            functions = [
                _COUNT_ONE if name == _COUNT else f'int {name}(void) {{ note("{name}"); return 0; }}\n'
                for name in sorted(names)
                if name.startswith("cupti") is of_cupti
            ]
            source = directory / f"{library}.c"
            source.write_text(_SOURCE % (self._log, library) + "".join(functions))
            command = ["gcc", "-shared", "-fPIC", "-O1", "-w", f"-Wl,-soname,{library}", "-o"]
            subprocess.run([*command, directory / library, source], check=True)

    @property
    def calls(self) -> Counter[str]:
        """Calls so far by function, and `load:LIBRARY`."""
        return Counter(self._log.read_text().split()) if self._log.exists() else Counter()
