"""Attaches each Python that has this directory on PYTHONPATH, then runs the sitecustomize that this one hides.

Very old Pythons may run it, too: it has nothing newer than Python 2.7.
"""

import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _attach():
    import importlib.util

    spec = importlib.util.spec_from_file_location("tpumon_attach", os.path.join(_HERE, "tpumon_attach", "__init__.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["tpumon_attach"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["tpumon_attach"]
        raise


if sys.version_info >= (3, 9) and os.environ.get("TPUMON_RUN") != "0":
    try:
        _attach()
    except Exception as error:  # whatever it is, the program runs on
        sys.stderr.write("tpumon: not attached: %s: %s\n" % (type(error).__name__, error))

# From here on all is as without this directory; Pythons started from this one find it in PYTHONPATH.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
del sys.modules["sitecustomize"]
importlib.import_module("sitecustomize")  # if there is none, Python passes over the ImportError
