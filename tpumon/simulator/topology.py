"""TPU names such as v5e-8, and the hosts, chips and devices behind them.

The number in a name counts TensorCores on v2, v3, v4, v5p and 7x, chips on v5e and v6e, as Cloud TPU names do
(tpu7x-128 is 64 chips of two TensorCores). Peaks are in `tpumon.model.chips`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from tpumon.errors import UsageError
from tpumon.model.chips import CHIPS, ChipKind


class Generation(Struct, frozen=True, kw_only=True):
    """One TPU generation.

    Attributes:
        name: as in accelerator types, for example "v5e".
        device_type: the profiler's name. "TPU v6 Lite" comes from a real trace, "TPU v7x" from XProf; that of v5e is
            inferred from them.
        counts_cores: whether the number in the name counts TensorCores rather than chips.
        sizes: every available size; None: any whole number of hosts.
        largest: the largest size.
        single_host_chips: the largest number of chips that fit on one host.
        hbm_gib: HBM per chip.
        answers_monitor: whether it answers the Monitor RPC; generations that exist only as TPU VMs do not.
    """

    name: str
    device_type: str
    counts_cores: bool = True
    sizes: tuple[int, ...] | None = None
    largest: int
    single_host_chips: int = 4
    hbm_gib: int
    answers_monitor: bool = False

    @property
    def chip(self) -> ChipKind:
        return CHIPS[self.name]

    @property
    def megacore(self) -> bool:
        """True if the chip's TensorCores appear as one device."""
        return self.chip.devices < self.chip.cores

    @property
    def host_size(self) -> int:
        return CHIPS_PER_HOST * (self.chip.cores if self.counts_cores else 1)


CHIPS_PER_HOST = 4  # of every slice of more than one host

_V2_SIZES = (8, 32, 128, 256, 512)
_V3_SIZES = (8, 32, 64, 128, 256, 512, 1024, 2048)
_FLAT_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)

GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation(name="v2", device_type="TPU v2", sizes=_V2_SIZES, largest=512, hbm_gib=16, answers_monitor=True),
        Generation(name="v3", device_type="TPU v3", sizes=_V3_SIZES, largest=2048, hbm_gib=32, answers_monitor=True),
        Generation(name="v4", device_type="TPU v4", largest=8192, hbm_gib=32),
        Generation(name="v5e", device_type="TPU v5 Lite", sizes=_FLAT_SIZES, largest=256, hbm_gib=16,
                   counts_cores=False, single_host_chips=8),
        Generation(name="v5p", device_type="TPU v5", largest=17920, hbm_gib=95),
        Generation(name="v6e", device_type="TPU v6 Lite", sizes=_FLAT_SIZES, largest=256, hbm_gib=32,
                   counts_cores=False, single_host_chips=8),
        Generation(name="7x", device_type="TPU v7x", largest=18432, hbm_gib=192),
    )
}  # fmt: skip

_ALIASES = {"v5litepod": "v5e", "v5lite": "v5e", "tpu7x": "7x", "v7x": "7x"}
_GOOD_FORM = "give GENERATION-SIZE, for example v3-8, v4-16, v5e-8, v5p-128, v6e-256 or 7x-8"


class Topology(Struct, frozen=True, kw_only=True):
    """A slice.

    Attributes:
        name: for example "v5e-8".
        generation: its TPU generation.
        hosts: number of hosts, one worker each.
        chips_per_host: chips of each host.
    """

    name: str
    generation: Generation
    hosts: int
    chips_per_host: int

    @property
    def cores_per_host(self) -> int:
        return self.chips_per_host * self.generation.chip.cores

    @property
    def devices_per_host(self) -> int:
        """Number of /device:TPU:N planes of one worker."""
        return self.chips_per_host * self.generation.chip.devices

    @property
    def device_peak_flops(self) -> float:
        """Peak of one device in bf16 FLOP/s."""
        return self.generation.chip.flops_per_s / self.generation.chip.devices

    @property
    def device_hbm_bytes(self) -> int:
        return (self.generation.hbm_gib << 30) // self.generation.chip.devices

    @property
    def device_hbm_bandwidth_bytes_per_s(self) -> float:
        return self.generation.chip.hbm_bytes_per_s / self.generation.chip.devices

    def worker_name(self, worker: int) -> str:
        """Host name of a simulated worker, for example "sim-v5e-8-w0"."""
        return f"sim-{self.name}-w{worker}"


def parse_topology(text: str) -> Topology:
    """Reads a TPU name.

    Args:
        text: for example "v5e-8"; aliases such as "v5litepod-8" and "tpu7x-8" are accepted.

    Raises:
        UsageError: no such generation, or no slice of that size; the message suggests the nearest.
    """
    match = re.fullmatch(r"([a-z0-9]+)-([0-9]{1,6})", text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} is not a TPU name: {_GOOD_FORM}", option="simulate")
    family = _ALIASES.get(match[1], match[1])
    generation = GENERATIONS.get(family)
    if generation is None:
        hint = hint_at(family, [*GENERATIONS, *_ALIASES], _GOOD_FORM, cutoff=0.5, after=f"-{match[2]}")
        known = ", ".join(GENERATIONS)
        raise UsageError(
            f"unknown TPU generation {match[1]!r} in {text!r}; choose one of {known}; {hint}", option="simulate"
        )
    size = int(match[2])
    near = _nearest_sizes(generation, size)
    if size not in near:
        nearest = ", ".join(f"{generation.name}-{each}" for each in near)
        raise UsageError(f"no TPU has the name {text!r}; the nearest are {nearest}", option="simulate")
    chips = size // generation.chip.cores if generation.counts_cores else size
    hosts = 1 if chips <= generation.single_host_chips else chips // CHIPS_PER_HOST
    return Topology(name=f"{generation.name}-{size}", generation=generation, hosts=hosts, chips_per_host=chips // hosts)


def hint_at(
    name: str, known: Sequence[str], otherwise: str, *, most: int = 2, cutoff: float = 0.6, after: str = ""
) -> str:
    """Returns `did you mean A or B?` of the known names that are most like this one; if none is, what to say otherwise.

    Args:
        name: the unknown name.
        known: the known names.
        otherwise: what to say if no known name is similar.
        most: names to say.
        cutoff: least similarity of a name, 0-1.
        after: follows each name.
    """
    import difflib  # here: few names are wrong

    close = difflib.get_close_matches(name, known, n=most, cutoff=cutoff)
    return f"did you mean {' or '.join(each + after for each in close)}?" if close else otherwise


def _nearest_sizes(generation: Generation, size: int) -> list[int]:
    """The sizes that exist around a size; it is one of them if it exists."""
    if generation.sizes is not None:
        return sorted(sorted(generation.sizes, key=lambda available: abs(available - size))[:2])
    unit = generation.host_size
    below = min(size // unit * unit, generation.largest)
    return [near for near in (below, below + unit) if 0 < near <= generation.largest]
