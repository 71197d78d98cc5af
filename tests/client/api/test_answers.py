"""The structs of the client beside the schemas of the service: neither has a field that the other lacks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import inspect

from trmon.api.alerts import AlertOut
from trmon.api.diagnosis_schemas import DiagnosisOut
from trmon.api.fleet import FleetRunOut
from trmon.api.notes import NoteOut
from trmon.api.policies import PolicyVersionOut
from trmon.api.runs import RunOut
from trmon.api.whatif import WhatIfOut
from trmon_client.api import AlertInfo, ApiNumber, DiagnosisInfo, NoteInfo, PolicyInfo, RunInfo, RunStatus, WhatIfInfo
from trmon_client.api.answers import decode_answer, encode_info
from trmon_client.api.policies import ShareInfo

SCHEMAS: dict[Any, Any] = {
    AlertInfo: AlertOut,
    DiagnosisInfo: DiagnosisOut,
    NoteInfo: NoteOut,
    PolicyInfo: PolicyVersionOut,
    RunInfo: RunOut,
    RunStatus: FleetRunOut,
    WhatIfInfo: WhatIfOut,
}


LEAVES = {
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.AnyType: "any",
}
NUMBER = frozenset(["number", "string", "null"])


@pytest.mark.parametrize("struct", SCHEMAS, ids=lambda struct: struct.__name__)
def test_a_struct_has_the_fields_of_the_services_schema(struct: Any) -> None:
    schema = SCHEMAS[struct].model_json_schema(mode="serialization")
    assert client_shape(inspect.type_info(struct)) == service_shape(schema, schema.get("$defs", {}))


def test_numbers_that_json_lacks_come_back() -> None:
    body = b'{"n_sequences":0,"mask_rate":null}'
    share = decode_answer(body, ShareInfo)
    assert share.mask_rate != share.mask_rate
    assert encode_info(share) == body
    endless = decode_answer(b'{"n_sequences":1,"mask_rate":"-inf"}', ShareInfo)
    assert (endless.mask_rate, endless.mask_rate + 1) == (-float("inf"), -float("inf"))
    assert encode_info(endless) == b'{"n_sequences":1,"mask_rate":"-inf"}'


def test_a_newer_service_may_answer_more_and_not_less() -> None:
    newer = b'{"n_sequences":2,"mask_rate":0.5,"median_length":7}'
    assert decode_answer(newer, ShareInfo) == ShareInfo(n_sequences=2, mask_rate=ApiNumber(0.5))
    with pytest.raises(ValueError, match="mask_rate"):
        decode_answer(b'{"n_sequences":2}', ShareInfo)


def client_shape(kind: Any) -> Any:
    """Return what JSON of a type may be: a set of names of types, of lists and of structs with their fields."""
    match kind:
        case inspect.StructType():
            fields = frozenset((field.encode_name, client_shape(field.type)) for field in kind.fields)
            return frozenset([fields])
        case inspect.VarTupleType():
            return frozenset([("list", client_shape(kind.item_type))])
        case inspect.DictType():
            return frozenset([("dict", client_shape(kind.value_type))])
        case inspect.UnionType():
            return frozenset().union(*map(client_shape, kind.types))
        case inspect.CustomType():
            return {ApiNumber: NUMBER}[kind.cls]
    return frozenset([LEAVES[type(kind)]])


def service_shape(schema: Any, schemas: dict[str, Any]) -> Any:
    """Return what JSON a schema allows, as `client_shape` does."""
    if schema is True:
        return frozenset(["any"])
    if "$ref" in schema:
        return service_shape(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        return frozenset().union(*(service_shape(one, schemas) for one in schema["anyOf"]))
    if "properties" in schema:
        fields = schema["properties"].items()
        return frozenset([frozenset((name, service_shape(one, schemas)) for name, one in fields)])
    if schema["type"] == "array":
        return frozenset([("list", service_shape(schema["items"], schemas))])
    if schema["type"] == "object":
        return frozenset([("dict", service_shape(schema["additionalProperties"], schemas))])
    return frozenset([schema["type"]])
