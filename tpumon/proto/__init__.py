"""The wire formats: .proto files, the code that `make proto` generates from them, and the method paths."""

PROFILE = "/tensorflow.ProfilerService/Profile"
TERMINATE = "/tensorflow.ProfilerService/Terminate"
MONITOR = "/tensorflow.ProfilerService/Monitor"
GET_SNAPSHOT = "/tensorflow.ProfilerService/GetSnapshot"

GET_RUNTIME_METRIC = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
LIST_SUPPORTED_METRICS = "/tpu.monitoring.runtime.RuntimeMetricService/ListSupportedMetrics"

LIST_POD_RESOURCES = "/v1.PodResourcesLister/List"
