"""A simulated TPU: real gRPC servers that answer like those of a TPU job, from a deterministic scenario.

    topology.py            TPU names such as v5e-8: hosts, chips, devices
    scenario/              the simulated job: a pure function of scenario, seed, worker and time
    expected_figures.py    the figures that XProf would compute for a window
    trace_writer.py        the same window as XSpace bytes
    trace_host.py          events of the host's threads in them
    plane_writer.py        planes of an XSpace
    monitor_text.py        the same window as the text of the Monitor RPC
    simulator_settings.py  settings of a simulated fleet
    grpc_servers.py        gRPC servers made of coroutines
    profiler.py            the profiler service of one worker
    runtime_service.py     the runtime metric service of one worker
    server_metrics.py      the metrics page of a server of models
    simulated_fleet.py     all of them on ports

Every answer of a simulated TPU carries `tpumon.model.SIMULATED_MARK`: in a line of the Monitor text, in a warning of
the XSpace, in the description of a runtime metric.
"""
