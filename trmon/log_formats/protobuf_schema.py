"""Classes of Protocol Buffers messages, made from the fields that are read; other fields are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Fields: TypeAlias = Mapping[str, tuple[int, str]]
"""The number and the type of each field, such as `(1, "double")` or `(2, "repeated Item")`."""
_Field = descriptor_pb2.FieldDescriptorProto


def message_class(messages: Mapping[str, Fields], name: str) -> Any:
    """Return the class of a message whose schema, and those of the messages in it, are given by name.

    Texts are read as bytes, since a damaged one is not UTF-8.
    """
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="log", syntax="proto2")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            described.field.append(_described(field, number, kind, messages))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"log.{name}"))


def _described(name: str, number: int, kind: str, messages: Mapping[str, Fields]) -> Any:
    type_name = kind.removeprefix("repeated ")
    is_message = type_name in messages
    return _Field(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if type_name != kind else _Field.LABEL_OPTIONAL,
        type=_Field.TYPE_MESSAGE if is_message else _Field.Type.Value(f"TYPE_{type_name.upper()}"),
        type_name=f".log.{type_name}" if is_message else None,
    )
