"""What travels: our .proto files, the code generated from them (`make proto`), and the methods' paths."""

PROFILE = "/tensorflow.ProfilerService/Profile"
TERMINATE = "/tensorflow.ProfilerService/Terminate"
MONITOR = "/tensorflow.ProfilerService/Monitor"
GET_SNAPSHOT = "/tensorflow.ProfilerService/GetSnapshot"

GET_RUNTIME_METRIC = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
LIST_SUPPORTED_METRICS = "/tpu.monitoring.runtime.RuntimeMetricService/ListSupportedMetrics"
