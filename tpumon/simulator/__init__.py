"""A TPU that is not there: real gRPC servers that answer as a TPU job's would, from a deterministic scenario.

    topology.py   what a name such as v5e-8 stands for: hosts, chips, devices, peaks
    scenario.py   what the job does when: a pure function of scenario, seed, worker and time
    figures.py    what XProf would compute of a window of it
    trace.py      the same window as XSpace bytes
    settings.py   what a simulated fleet is made from
    profiler.py   the profiler service of one worker
    runtime.py    the runtime metric service beside it
    server.py     both as real servers on ports, one pair per worker

Everything that a simulated TPU says carries `tpumon.model.SIMULATED_MARK`: a line of the Monitor text, an
XSpace warning, the description of a runtime metric.
"""
