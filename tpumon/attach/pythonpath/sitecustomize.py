"""Attaches each Python that has this directory on PYTHONPATH, then runs the sitecustomize that this one hides.

Very old Pythons may run it, too: it has nothing newer than Python 2.7.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


if sys.version_info >= (3, 9) and os.environ.get("TPUMON_ATTACH") != "0":
    try:
        sys.path.insert(0, _HERE)
        importlib.import_module("tpumon_attach")
    except Exception as error:  # whatever it is, the program runs on
        _line = "tpumon: not attached: " + type(error).__name__ + ": " + str(error) + "\n"
        try:
            if sys.stderr is not None:  # else it is closed, and descriptor 2 is another file
                os.write(2, _line.encode("utf-8", "replace"))
        except Exception:  # noqa: S110 - Python would not start
            pass

# From here on all is as without this directory; Pythons started from this one find it in PYTHONPATH.
sys.path[:] = [entry for entry in sys.path if entry != _HERE]
_self = sys.modules.pop("sitecustomize")  # kept: an old Python would clear what it frees
importlib.import_module("sitecustomize")  # if there is none, Python passes over the ImportError
