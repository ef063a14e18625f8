"""What holds for every test."""

from __future__ import annotations

import hypothesis

# How long an example takes is the machine's business; no test here times code.
hypothesis.settings.register_profile("tpumon", deadline=None)
hypothesis.settings.load_profile("tpumon")
