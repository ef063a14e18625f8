"""Metrics of libtpu about the network between slices, by our names. Only multislice jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Counted(NamedTuple):
    """One of libtpu's metrics.

    Attributes:
        name: libtpu's.
        about: what it counts, for people.
    """

    name: str
    about: str


def _latency(what: str, about: str) -> Counted:
    return Counted(f"megascale.{what}.microsecond.cumulative.distribution", about)


def _count(what: str, about: str) -> Counted:
    return Counted(f"megascale.{what}.cumulative.count", about)


RUNTIME_LATENCIES: Mapping[str, Counted] = {
    "dcn_transfer": _latency("dcn_transfer_latencies", "Times of transfers to other slices"),
    "dcn_inbound_transfer": _latency("dcn_inbound_transfer_latencies", "Times of transfers from other slices"),
    "collective": _latency("collective_end_to_end_latencies", "Times of collectives between slices"),
    "host_to_device_transfer": _latency("host_to_device_transfer_latencies", "Times of transfers from host to device"),
    "device_to_host_transfer": _latency("device_to_host_transfer_latencies", "Times of transfers from device to host"),
    "host_compute": _latency("mxla_compute_latencies", "Times that hosts compute for collectives between slices"),
    "tcp_min_rtt": _latency("grpc_tcp_min_rtt", "Round-trip times between slices, TCP's minimum"),
}
"""Distributions of times."""

RUNTIME_COUNTS: Mapping[str, Counted] = {
    "tcp_sent_packets": _count("grpc_tcp_packets_sent", "TCP packets sent to other slices"),
    "tcp_retransmitted_packets": _count("grpc_tcp_packets_retransmitted", "TCP packets sent again"),
    "tcp_sent_bytes": _count("grpc_tcp_bytes_sent", "Bytes sent to other slices"),
    "tcp_retransmitted_bytes": _count("grpc_tcp_bytes_retransmitted", "Bytes sent again"),
}
"""Counts."""
