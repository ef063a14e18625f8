"""TPU names such as v5e-8, and the hosts, chips and devices behind them.

The number in a name counts TensorCores on v2, v3, v4, v5p and 7x, chips on v5e and v6e, as Cloud TPU names do
(tpu7x-128 is 64 chips of two TensorCores). Peaks are in `tpumon.model.chips`.
"""

from __future__ import annotations

import re

from msgspec import Struct

from tpumon.errors import UsageError
from tpumon.model.chips import CHIPS

GIB = 1 << 30


class Generation(Struct, frozen=True, kw_only=True):
    """One TPU generation.

    Attributes:
        name: as in accelerator types, for example "v5e".
        device_type: the profiler's name. "TPU v6 Lite" comes from a real trace, "TPU v7x" from XProf; that of v5e is
            inferred from them.
        cores_per_chip: TensorCores per chip.
        devices_per_chip: /device:TPU:N planes per chip; 1 if two TensorCores act as one (megacore).
        counts_cores: whether the number in the name counts TensorCores rather than chips.
        sizes: every available size; None: any whole number of hosts.
        largest: the largest size.
        single_host_chips: the largest number of chips that fit on one host.
        peak_flops: bf16 FLOP/s per chip.
        hbm_bytes: HBM per chip.
        hbm_bandwidth_bytes_per_s: HBM bandwidth per chip.
        answers_monitor: whether it answers the Monitor RPC; generations that exist only as TPU VMs do not.
    """

    name: str
    device_type: str
    cores_per_chip: int
    devices_per_chip: int
    counts_cores: bool
    sizes: tuple[int, ...] | None
    largest: int
    single_host_chips: int
    peak_flops: float
    hbm_bytes: int
    hbm_bandwidth_bytes_per_s: float
    answers_monitor: bool

    @property
    def megacore(self) -> bool:
        """Whether the chip's TensorCores appear as one device."""
        return self.devices_per_chip < self.cores_per_chip


CHIPS_PER_HOST = 4  # of every slice of more than one host


def _generation(
    name: str,
    device_type: str,
    *,
    cores: int,
    devices: int,
    sizes: tuple[int, ...] | None,
    largest: int,
    hbm_gib: int,
    counts_cores: bool = True,
    single_host_chips: int = CHIPS_PER_HOST,
    answers_monitor: bool = False,
) -> Generation:
    return Generation(
        name=name,
        device_type=device_type,
        cores_per_chip=cores,
        devices_per_chip=devices,
        counts_cores=counts_cores,
        sizes=sizes,
        largest=largest,
        single_host_chips=single_host_chips,
        peak_flops=CHIPS[name].flops_per_s,
        hbm_bytes=hbm_gib * GIB,
        hbm_bandwidth_bytes_per_s=CHIPS[name].hbm_bytes_per_s,
        answers_monitor=answers_monitor,
    )


_V2_SIZES = (8, 32, 128, 256, 512)
_V3_SIZES = (8, 32, 64, 128, 256, 512, 1024, 2048)
_FLAT_SIZES = (1, 4, 8, 16, 32, 64, 128, 256)

GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        _generation("v2", "TPU v2", cores=2, devices=2, sizes=_V2_SIZES, largest=512, hbm_gib=16,
                    answers_monitor=True),
        _generation("v3", "TPU v3", cores=2, devices=2, sizes=_V3_SIZES, largest=2048, hbm_gib=32,
                    answers_monitor=True),
        _generation("v4", "TPU v4", cores=2, devices=1, sizes=None, largest=8192, hbm_gib=32),
        _generation("v5e", "TPU v5 Lite", cores=1, devices=1, sizes=_FLAT_SIZES, largest=256,
                    hbm_gib=16, counts_cores=False, single_host_chips=8),
        _generation("v5p", "TPU v5", cores=2, devices=1, sizes=None, largest=17920, hbm_gib=95),
        _generation("v6e", "TPU v6 Lite", cores=1, devices=1, sizes=_FLAT_SIZES, largest=256,
                    hbm_gib=32, counts_cores=False, single_host_chips=8),
        _generation("7x", "TPU v7x", cores=2, devices=2, sizes=None, largest=18432, hbm_gib=192),
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
        """Number of TensorCores of one worker."""
        return self.chips_per_host * self.generation.cores_per_chip

    @property
    def devices_per_host(self) -> int:
        """Number of /device:TPU:N planes of one worker."""
        return self.chips_per_host * self.generation.devices_per_chip

    @property
    def device_peak_flops(self) -> float:
        """Peak of one device in bf16 FLOP/s."""
        return self.generation.peak_flops / self.generation.devices_per_chip

    @property
    def device_hbm_bytes(self) -> int:
        """Nominal HBM size of one device."""
        return self.generation.hbm_bytes // self.generation.devices_per_chip

    @property
    def device_hbm_bandwidth_bytes_per_s(self) -> float:
        """Peak HBM bandwidth of one device."""
        return self.generation.hbm_bandwidth_bytes_per_s / self.generation.devices_per_chip

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
        raise UsageError(f"{text!r} is not a TPU name: {_GOOD_FORM}")
    family = _ALIASES.get(match[1], match[1])
    generation = GENERATIONS.get(family)
    if generation is None:
        import difflib  # here: few names are wrong

        close = difflib.get_close_matches(family, [*GENERATIONS, *_ALIASES], n=2, cutoff=0.5)
        nearest = " or ".join(f"{name}-{match[2]}" for name in close)
        hint = f"did you mean {nearest}?" if nearest else _GOOD_FORM
        known = ", ".join(GENERATIONS)
        raise UsageError(f"unknown TPU generation {match[1]!r} in {text!r}; choose one of {known}; {hint}")
    size = int(match[2])
    if not _exists(generation, size):
        nearest = ", ".join(f"{generation.name}-{near}" for near in _nearest_sizes(generation, size))
        raise UsageError(f"no TPU has the name {text!r}; the nearest are {nearest}")
    chips = size // generation.cores_per_chip if generation.counts_cores else size
    hosts = 1 if chips <= generation.single_host_chips else chips // CHIPS_PER_HOST
    return Topology(name=f"{generation.name}-{size}", generation=generation, hosts=hosts, chips_per_host=chips // hosts)


def _host_size(generation: Generation) -> int:
    return CHIPS_PER_HOST * (generation.cores_per_chip if generation.counts_cores else 1)


def _exists(generation: Generation, size: int) -> bool:
    if generation.sizes is not None:
        return size in generation.sizes
    return 0 < size <= generation.largest and size % _host_size(generation) == 0


def _nearest_sizes(generation: Generation, size: int) -> list[int]:
    if generation.sizes is not None:
        return sorted(sorted(generation.sizes, key=lambda available: abs(available - size))[:2])
    unit = _host_size(generation)
    below = min(size // unit * unit, generation.largest)
    return [near for near in (below, below + unit) if 0 < near <= generation.largest]
