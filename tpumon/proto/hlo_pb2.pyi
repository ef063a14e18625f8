from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HloProgram(_message.Message):
    __slots__ = ("module", "buffers")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    module: HloModule
    buffers: BufferAssignment
    def __init__(self, module: _Optional[_Union[HloModule, _Mapping]] = ..., buffers: _Optional[_Union[BufferAssignment, _Mapping]] = ...) -> None: ...

class HloModule(_message.Message):
    __slots__ = ("name", "computations", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMPUTATIONS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    computations: _containers.RepeatedCompositeFieldContainer[HloComputation]
    id: int
    def __init__(self, name: _Optional[str] = ..., computations: _Optional[_Iterable[_Union[HloComputation, _Mapping]]] = ..., id: _Optional[int] = ...) -> None: ...

class HloComputation(_message.Message):
    __slots__ = ("name", "instructions", "id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTIONS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    instructions: _containers.RepeatedCompositeFieldContainer[HloInstruction]
    id: int
    def __init__(self, name: _Optional[str] = ..., instructions: _Optional[_Iterable[_Union[HloInstruction, _Mapping]]] = ..., id: _Optional[int] = ...) -> None: ...

class HloInstruction(_message.Message):
    __slots__ = ("name", "opcode", "origin", "id", "called_computation_ids")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPCODE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    CALLED_COMPUTATION_IDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    opcode: str
    origin: OpOrigin
    id: int
    called_computation_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., opcode: _Optional[str] = ..., origin: _Optional[_Union[OpOrigin, _Mapping]] = ..., id: _Optional[int] = ..., called_computation_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class OpOrigin(_message.Message):
    __slots__ = ("op_name",)
    OP_NAME_FIELD_NUMBER: _ClassVar[int]
    op_name: str
    def __init__(self, op_name: _Optional[str] = ...) -> None: ...

class BufferAssignment(_message.Message):
    __slots__ = ("logical_buffers", "allocations", "simulations")
    LOGICAL_BUFFERS_FIELD_NUMBER: _ClassVar[int]
    ALLOCATIONS_FIELD_NUMBER: _ClassVar[int]
    SIMULATIONS_FIELD_NUMBER: _ClassVar[int]
    logical_buffers: _containers.RepeatedCompositeFieldContainer[LogicalBuffer]
    allocations: _containers.RepeatedCompositeFieldContainer[BufferAllocation]
    simulations: _containers.RepeatedCompositeFieldContainer[HeapSimulation]
    def __init__(self, logical_buffers: _Optional[_Iterable[_Union[LogicalBuffer, _Mapping]]] = ..., allocations: _Optional[_Iterable[_Union[BufferAllocation, _Mapping]]] = ..., simulations: _Optional[_Iterable[_Union[HeapSimulation, _Mapping]]] = ...) -> None: ...

class LogicalBuffer(_message.Message):
    __slots__ = ("id", "size", "defined_at", "color")
    ID_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DEFINED_AT_FIELD_NUMBER: _ClassVar[int]
    COLOR_FIELD_NUMBER: _ClassVar[int]
    id: int
    size: int
    defined_at: BufferPlace
    color: int
    def __init__(self, id: _Optional[int] = ..., size: _Optional[int] = ..., defined_at: _Optional[_Union[BufferPlace, _Mapping]] = ..., color: _Optional[int] = ...) -> None: ...

class BufferPlace(_message.Message):
    __slots__ = ("instruction_name", "instruction_id")
    INSTRUCTION_NAME_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_ID_FIELD_NUMBER: _ClassVar[int]
    instruction_name: str
    instruction_id: int
    def __init__(self, instruction_name: _Optional[str] = ..., instruction_id: _Optional[int] = ...) -> None: ...

class BufferAllocation(_message.Message):
    __slots__ = ("index", "size", "is_thread_local", "is_parameter", "maybe_live_out", "color", "assigned", "is_constant")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    IS_THREAD_LOCAL_FIELD_NUMBER: _ClassVar[int]
    IS_PARAMETER_FIELD_NUMBER: _ClassVar[int]
    MAYBE_LIVE_OUT_FIELD_NUMBER: _ClassVar[int]
    COLOR_FIELD_NUMBER: _ClassVar[int]
    ASSIGNED_FIELD_NUMBER: _ClassVar[int]
    IS_CONSTANT_FIELD_NUMBER: _ClassVar[int]
    index: int
    size: int
    is_thread_local: bool
    is_parameter: bool
    maybe_live_out: bool
    color: int
    assigned: _containers.RepeatedCompositeFieldContainer[AssignedBuffer]
    is_constant: bool
    def __init__(self, index: _Optional[int] = ..., size: _Optional[int] = ..., is_thread_local: bool = ..., is_parameter: bool = ..., maybe_live_out: bool = ..., color: _Optional[int] = ..., assigned: _Optional[_Iterable[_Union[AssignedBuffer, _Mapping]]] = ..., is_constant: bool = ...) -> None: ...

class AssignedBuffer(_message.Message):
    __slots__ = ("logical_buffer_id", "offset", "size")
    LOGICAL_BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    logical_buffer_id: int
    offset: int
    size: int
    def __init__(self, logical_buffer_id: _Optional[int] = ..., offset: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class HeapSimulation(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[HeapEvent]
    def __init__(self, events: _Optional[_Iterable[_Union[HeapEvent, _Mapping]]] = ...) -> None: ...

class HeapEvent(_message.Message):
    __slots__ = ("kind", "logical_buffer_id", "instruction_name", "shared_buffer_id")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALLOCATE: _ClassVar[HeapEvent.Kind]
        RELEASE: _ClassVar[HeapEvent.Kind]
        SHARE: _ClassVar[HeapEvent.Kind]
    ALLOCATE: HeapEvent.Kind
    RELEASE: HeapEvent.Kind
    SHARE: HeapEvent.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    LOGICAL_BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_NAME_FIELD_NUMBER: _ClassVar[int]
    SHARED_BUFFER_ID_FIELD_NUMBER: _ClassVar[int]
    kind: HeapEvent.Kind
    logical_buffer_id: int
    instruction_name: str
    shared_buffer_id: int
    def __init__(self, kind: _Optional[_Union[HeapEvent.Kind, str]] = ..., logical_buffer_id: _Optional[int] = ..., instruction_name: _Optional[str] = ..., shared_buffer_id: _Optional[int] = ...) -> None: ...
