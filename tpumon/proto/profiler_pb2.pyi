from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProfileOptions(_message.Message):
    __slots__ = ("version", "include_dataset_ops", "host_tracer_level", "device_tracer_level", "python_tracer_level", "device_type", "enable_hlo_proto", "start_timestamp_ns", "advanced_configuration", "duration_ms")
    class DeviceType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[ProfileOptions.DeviceType]
        CPU: _ClassVar[ProfileOptions.DeviceType]
        GPU: _ClassVar[ProfileOptions.DeviceType]
        TPU: _ClassVar[ProfileOptions.DeviceType]
        PLUGGABLE_DEVICE: _ClassVar[ProfileOptions.DeviceType]
    UNSPECIFIED: ProfileOptions.DeviceType
    CPU: ProfileOptions.DeviceType
    GPU: ProfileOptions.DeviceType
    TPU: ProfileOptions.DeviceType
    PLUGGABLE_DEVICE: ProfileOptions.DeviceType
    class AdvancedConfigValue(_message.Message):
        __slots__ = ("string_value", "bool_value", "int64_value")
        STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
        BOOL_VALUE_FIELD_NUMBER: _ClassVar[int]
        INT64_VALUE_FIELD_NUMBER: _ClassVar[int]
        string_value: str
        bool_value: bool
        int64_value: int
        def __init__(self, string_value: _Optional[str] = ..., bool_value: bool = ..., int64_value: _Optional[int] = ...) -> None: ...
    class AdvancedConfigurationEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: ProfileOptions.AdvancedConfigValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[ProfileOptions.AdvancedConfigValue, _Mapping]] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DATASET_OPS_FIELD_NUMBER: _ClassVar[int]
    HOST_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PYTHON_TRACER_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENABLE_HLO_PROTO_FIELD_NUMBER: _ClassVar[int]
    START_TIMESTAMP_NS_FIELD_NUMBER: _ClassVar[int]
    ADVANCED_CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    version: int
    include_dataset_ops: bool
    host_tracer_level: int
    device_tracer_level: int
    python_tracer_level: int
    device_type: ProfileOptions.DeviceType
    enable_hlo_proto: bool
    start_timestamp_ns: int
    advanced_configuration: _containers.MessageMap[str, ProfileOptions.AdvancedConfigValue]
    duration_ms: int
    def __init__(self, version: _Optional[int] = ..., include_dataset_ops: bool = ..., host_tracer_level: _Optional[int] = ..., device_tracer_level: _Optional[int] = ..., python_tracer_level: _Optional[int] = ..., device_type: _Optional[_Union[ProfileOptions.DeviceType, str]] = ..., enable_hlo_proto: bool = ..., start_timestamp_ns: _Optional[int] = ..., advanced_configuration: _Optional[_Mapping[str, ProfileOptions.AdvancedConfigValue]] = ..., duration_ms: _Optional[int] = ...) -> None: ...

class ProfileRequest(_message.Message):
    __slots__ = ("duration_ms", "max_events", "tools", "opts", "repository_root", "session_id", "host_name", "emit_xspace")
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_EVENTS_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    OPTS_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ROOT_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_NAME_FIELD_NUMBER: _ClassVar[int]
    EMIT_XSPACE_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    max_events: int
    tools: _containers.RepeatedScalarFieldContainer[str]
    opts: ProfileOptions
    repository_root: str
    session_id: str
    host_name: str
    emit_xspace: bool
    def __init__(self, duration_ms: _Optional[int] = ..., max_events: _Optional[int] = ..., tools: _Optional[_Iterable[str]] = ..., opts: _Optional[_Union[ProfileOptions, _Mapping]] = ..., repository_root: _Optional[str] = ..., session_id: _Optional[str] = ..., host_name: _Optional[str] = ..., emit_xspace: bool = ...) -> None: ...

class ProfileResponse(_message.Message):
    __slots__ = ("empty_trace", "xspace")
    EMPTY_TRACE_FIELD_NUMBER: _ClassVar[int]
    XSPACE_FIELD_NUMBER: _ClassVar[int]
    empty_trace: bool
    xspace: bytes
    def __init__(self, empty_trace: bool = ..., xspace: _Optional[bytes] = ...) -> None: ...

class TerminateRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class TerminateResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MonitorRequest(_message.Message):
    __slots__ = ("duration_ms", "monitoring_level", "timestamp")
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    MONITORING_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    duration_ms: int
    monitoring_level: int
    timestamp: bool
    def __init__(self, duration_ms: _Optional[int] = ..., monitoring_level: _Optional[int] = ..., timestamp: bool = ...) -> None: ...

class MonitorResult(_message.Message):
    __slots__ = ("response_type", "device_idle_time_percent", "matrix_unit_utilization_percent", "step_time_ms_avg", "step_time_ms_min", "step_time_ms_max", "infeed_percent_avg", "infeed_percent_min", "infeed_percent_max")
    class ResponseType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EMPTY_RESULT: _ClassVar[MonitorResult.ResponseType]
        UTIL_ONLY: _ClassVar[MonitorResult.ResponseType]
        UTIL_IDLE: _ClassVar[MonitorResult.ResponseType]
        UTIL_IDLE_STEP: _ClassVar[MonitorResult.ResponseType]
    EMPTY_RESULT: MonitorResult.ResponseType
    UTIL_ONLY: MonitorResult.ResponseType
    UTIL_IDLE: MonitorResult.ResponseType
    UTIL_IDLE_STEP: MonitorResult.ResponseType
    RESPONSE_TYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_IDLE_TIME_PERCENT_FIELD_NUMBER: _ClassVar[int]
    MATRIX_UNIT_UTILIZATION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_AVG_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    STEP_TIME_MS_MAX_FIELD_NUMBER: _ClassVar[int]
    INFEED_PERCENT_AVG_FIELD_NUMBER: _ClassVar[int]
    INFEED_PERCENT_MIN_FIELD_NUMBER: _ClassVar[int]
    INFEED_PERCENT_MAX_FIELD_NUMBER: _ClassVar[int]
    response_type: MonitorResult.ResponseType
    device_idle_time_percent: float
    matrix_unit_utilization_percent: float
    step_time_ms_avg: float
    step_time_ms_min: float
    step_time_ms_max: float
    infeed_percent_avg: float
    infeed_percent_min: float
    infeed_percent_max: float
    def __init__(self, response_type: _Optional[_Union[MonitorResult.ResponseType, str]] = ..., device_idle_time_percent: _Optional[float] = ..., matrix_unit_utilization_percent: _Optional[float] = ..., step_time_ms_avg: _Optional[float] = ..., step_time_ms_min: _Optional[float] = ..., step_time_ms_max: _Optional[float] = ..., infeed_percent_avg: _Optional[float] = ..., infeed_percent_min: _Optional[float] = ..., infeed_percent_max: _Optional[float] = ...) -> None: ...

class MonitorResponse(_message.Message):
    __slots__ = ("data", "monitor_result")
    DATA_FIELD_NUMBER: _ClassVar[int]
    MONITOR_RESULT_FIELD_NUMBER: _ClassVar[int]
    data: str
    monitor_result: MonitorResult
    def __init__(self, data: _Optional[str] = ..., monitor_result: _Optional[_Union[MonitorResult, _Mapping]] = ...) -> None: ...

class GetSnapshotRequest(_message.Message):
    __slots__ = ("snapshot_session_id",)
    SNAPSHOT_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    snapshot_session_id: str
    def __init__(self, snapshot_session_id: _Optional[str] = ...) -> None: ...
