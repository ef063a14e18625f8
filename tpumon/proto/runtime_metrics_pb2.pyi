from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MetricRequest(_message.Message):
    __slots__ = ("metric_name", "skip_node_aggregation")
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    SKIP_NODE_AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    metric_name: str
    skip_node_aggregation: bool
    def __init__(self, metric_name: _Optional[str] = ..., skip_node_aggregation: bool = ...) -> None: ...

class MetricResponse(_message.Message):
    __slots__ = ("metric",)
    METRIC_FIELD_NUMBER: _ClassVar[int]
    metric: TpuMetric
    def __init__(self, metric: _Optional[_Union[TpuMetric, _Mapping]] = ...) -> None: ...

class TpuMetric(_message.Message):
    __slots__ = ("name", "description", "metrics")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("attribute", "gauge", "counter", "distribution")
    ATTRIBUTE_FIELD_NUMBER: _ClassVar[int]
    GAUGE_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    attribute: Attribute
    gauge: Gauge
    counter: Counter
    distribution: Distribution
    def __init__(self, attribute: _Optional[_Union[Attribute, _Mapping]] = ..., gauge: _Optional[_Union[Gauge, _Mapping]] = ..., counter: _Optional[_Union[Counter, _Mapping]] = ..., distribution: _Optional[_Union[Distribution, _Mapping]] = ...) -> None: ...

class Attribute(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: AttrValue
    def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AttrValue, _Mapping]] = ...) -> None: ...

class AttrValue(_message.Message):
    __slots__ = ("string_attr", "bool_attr", "int_attr", "double_attr", "kvlist_attr")
    STRING_ATTR_FIELD_NUMBER: _ClassVar[int]
    BOOL_ATTR_FIELD_NUMBER: _ClassVar[int]
    INT_ATTR_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_ATTR_FIELD_NUMBER: _ClassVar[int]
    KVLIST_ATTR_FIELD_NUMBER: _ClassVar[int]
    string_attr: str
    bool_attr: bool
    int_attr: int
    double_attr: float
    kvlist_attr: KeyValueList
    def __init__(self, string_attr: _Optional[str] = ..., bool_attr: bool = ..., int_attr: _Optional[int] = ..., double_attr: _Optional[float] = ..., kvlist_attr: _Optional[_Union[KeyValueList, _Mapping]] = ...) -> None: ...

class KeyValueList(_message.Message):
    __slots__ = ("attributes",)
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    attributes: _containers.RepeatedCompositeFieldContainer[Attribute]
    def __init__(self, attributes: _Optional[_Iterable[_Union[Attribute, _Mapping]]] = ...) -> None: ...

class Gauge(_message.Message):
    __slots__ = ("as_double", "as_int", "as_string", "as_bool")
    AS_DOUBLE_FIELD_NUMBER: _ClassVar[int]
    AS_INT_FIELD_NUMBER: _ClassVar[int]
    AS_STRING_FIELD_NUMBER: _ClassVar[int]
    AS_BOOL_FIELD_NUMBER: _ClassVar[int]
    as_double: float
    as_int: int
    as_string: str
    as_bool: bool
    def __init__(self, as_double: _Optional[float] = ..., as_int: _Optional[int] = ..., as_string: _Optional[str] = ..., as_bool: bool = ...) -> None: ...

class Counter(_message.Message):
    __slots__ = ("as_double", "as_int")
    AS_DOUBLE_FIELD_NUMBER: _ClassVar[int]
    AS_INT_FIELD_NUMBER: _ClassVar[int]
    as_double: float
    as_int: int
    def __init__(self, as_double: _Optional[float] = ..., as_int: _Optional[int] = ...) -> None: ...

class Distribution(_message.Message):
    __slots__ = ("count", "mean", "bucket_options", "bucket_counts")
    class BucketOptions(_message.Message):
        __slots__ = ("exponential_buckets", "explicit_buckets", "linear_buckets")
        EXPONENTIAL_BUCKETS_FIELD_NUMBER: _ClassVar[int]
        EXPLICIT_BUCKETS_FIELD_NUMBER: _ClassVar[int]
        LINEAR_BUCKETS_FIELD_NUMBER: _ClassVar[int]
        exponential_buckets: Distribution.Exponential
        explicit_buckets: Distribution.Explicit
        linear_buckets: Distribution.Linear
        def __init__(self, exponential_buckets: _Optional[_Union[Distribution.Exponential, _Mapping]] = ..., explicit_buckets: _Optional[_Union[Distribution.Explicit, _Mapping]] = ..., linear_buckets: _Optional[_Union[Distribution.Linear, _Mapping]] = ...) -> None: ...
    class Exponential(_message.Message):
        __slots__ = ("num_finite_buckets", "growth_factor", "scale")
        NUM_FINITE_BUCKETS_FIELD_NUMBER: _ClassVar[int]
        GROWTH_FACTOR_FIELD_NUMBER: _ClassVar[int]
        SCALE_FIELD_NUMBER: _ClassVar[int]
        num_finite_buckets: int
        growth_factor: float
        scale: float
        def __init__(self, num_finite_buckets: _Optional[int] = ..., growth_factor: _Optional[float] = ..., scale: _Optional[float] = ...) -> None: ...
    class Explicit(_message.Message):
        __slots__ = ("bounds",)
        BOUNDS_FIELD_NUMBER: _ClassVar[int]
        bounds: _containers.RepeatedScalarFieldContainer[float]
        def __init__(self, bounds: _Optional[_Iterable[float]] = ...) -> None: ...
    class Linear(_message.Message):
        __slots__ = ("num_finite_buckets", "width", "offset")
        NUM_FINITE_BUCKETS_FIELD_NUMBER: _ClassVar[int]
        WIDTH_FIELD_NUMBER: _ClassVar[int]
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        num_finite_buckets: int
        width: float
        offset: float
        def __init__(self, num_finite_buckets: _Optional[int] = ..., width: _Optional[float] = ..., offset: _Optional[float] = ...) -> None: ...
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    BUCKET_OPTIONS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_COUNTS_FIELD_NUMBER: _ClassVar[int]
    count: int
    mean: float
    bucket_options: Distribution.BucketOptions
    bucket_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, count: _Optional[int] = ..., mean: _Optional[float] = ..., bucket_options: _Optional[_Union[Distribution.BucketOptions, _Mapping]] = ..., bucket_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class ListSupportedMetricsRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: str
    def __init__(self, filter: _Optional[str] = ...) -> None: ...

class ListSupportedMetricsResponse(_message.Message):
    __slots__ = ("supported_metric",)
    SUPPORTED_METRIC_FIELD_NUMBER: _ClassVar[int]
    supported_metric: _containers.RepeatedCompositeFieldContainer[SupportedMetric]
    def __init__(self, supported_metric: _Optional[_Iterable[_Union[SupportedMetric, _Mapping]]] = ...) -> None: ...

class SupportedMetric(_message.Message):
    __slots__ = ("metric_name", "unit", "metric_kind", "value_type", "external_gke_name", "external_gce_name")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNKNOWN: _ClassVar[SupportedMetric.Kind]
        GAUGE: _ClassVar[SupportedMetric.Kind]
        COUNTER: _ClassVar[SupportedMetric.Kind]
        DISTRIBUTION: _ClassVar[SupportedMetric.Kind]
    KIND_UNKNOWN: SupportedMetric.Kind
    GAUGE: SupportedMetric.Kind
    COUNTER: SupportedMetric.Kind
    DISTRIBUTION: SupportedMetric.Kind
    class ValueType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VALUE_TYPE_UNKNOWN: _ClassVar[SupportedMetric.ValueType]
        INT64: _ClassVar[SupportedMetric.ValueType]
        DOUBLE: _ClassVar[SupportedMetric.ValueType]
        STRING: _ClassVar[SupportedMetric.ValueType]
        BOOL: _ClassVar[SupportedMetric.ValueType]
        BUCKETS: _ClassVar[SupportedMetric.ValueType]
    VALUE_TYPE_UNKNOWN: SupportedMetric.ValueType
    INT64: SupportedMetric.ValueType
    DOUBLE: SupportedMetric.ValueType
    STRING: SupportedMetric.ValueType
    BOOL: SupportedMetric.ValueType
    BUCKETS: SupportedMetric.ValueType
    METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    METRIC_KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_TYPE_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_GKE_NAME_FIELD_NUMBER: _ClassVar[int]
    EXTERNAL_GCE_NAME_FIELD_NUMBER: _ClassVar[int]
    metric_name: str
    unit: str
    metric_kind: SupportedMetric.Kind
    value_type: SupportedMetric.ValueType
    external_gke_name: str
    external_gce_name: str
    def __init__(self, metric_name: _Optional[str] = ..., unit: _Optional[str] = ..., metric_kind: _Optional[_Union[SupportedMetric.Kind, str]] = ..., value_type: _Optional[_Union[SupportedMetric.ValueType, str]] = ..., external_gke_name: _Optional[str] = ..., external_gce_name: _Optional[str] = ...) -> None: ...
