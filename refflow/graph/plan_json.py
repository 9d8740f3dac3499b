"""Plans as JSON: what `spec/vectors/plan.schema.json` describes.  Implements PLAN-JSON of spec/text/plan.md.

Fields with their default value are left out, so a plan stays readable; times are integers or "p/q".
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from fractions import Fraction
from typing import Any

from .plan import KINDS, VERSION, Memory, Message, Plan, PlanError, RegisterDesc, Stream, Task

_PARTS = {"tasks": Task, "registers": RegisterDesc, "streams": Stream, "messages": Message}


def to_json(plan: Plan) -> str:
    """JSON text with one task, register, stream or message a line."""
    head = {"version": plan.version, "name": plan.name, "iterations": plan.iterations}
    lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for part in _PARTS:
        entries = ",\n    ".join(json.dumps(_entry(value)) for value in getattr(plan, part))
        lines.append(f'  "{part}": [\n    {entries}\n  ]' if entries else f'  "{part}": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> Plan:
    """The plan in JSON text; `PlanError` if it is of another version, or a field is unknown or missing."""
    data = json.loads(text)
    if data.get("version") != VERSION:
        raise PlanError(f"plan of version {data.get('version')!r}: this refflow reads version {VERSION}")
    parts: Any = {part: tuple(_value(cls, entry) for entry in data.get(part, [])) for part, cls in _PARTS.items()}
    return Plan(**parts, iterations=data["iterations"], name=data["name"])


def _entry(value: Any) -> dict[str, Any]:
    return {
        f.name: _plain(getattr(value, f.name))
        for f in fields(value)
        if f.default is MISSING or getattr(value, f.name) != f.default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return value.numerator if value.denominator == 1 else str(value)
    if isinstance(value, Memory):
        return {"block": value.block, "offset": value.offset}
    return value


def _value(cls: Any, entry: dict[str, Any]) -> Any:
    known = {f.name for f in fields(cls)}
    if unknown := sorted(set(entry) - known):
        raise PlanError(f"plan: {cls.__name__} has no field {unknown[0]!r}; fields: {', '.join(sorted(known))}")
    try:
        return cls(**{key: _typed(key, value) for key, value in entry.items()})
    except TypeError as error:
        raise PlanError(f"plan: {cls.__name__} {entry}: {error}") from None


def _typed(key: str, value: Any) -> Any:
    if key == "time":
        return Fraction(value)
    if key == "memory":
        return None if value is None else Memory(value["block"], value["offset"])
    if isinstance(value, list):
        return tuple(tuple(item) if isinstance(item, list) else item for item in value)
    return value


def schema() -> dict[str, Any]:
    """The JSON schema of a plan (draft 2020-12), as checked in."""
    number = {"type": "integer", "minimum": 0}
    positive = {"type": "integer", "minimum": 1}
    words = {"type": "string"}
    ids = {"type": "array", "items": number}
    time = {"anyOf": [number, {"type": "string", "pattern": "^[0-9]+/[1-9][0-9]*$"}]}
    pairs = {"type": "array", "items": {"type": "array", "prefixItems": [number, number], "minItems": 2, "maxItems": 2}}
    memory = _object({"block": number, "offset": number}, ["block", "offset"])
    place = {"id": number, "name": words, "rank": number}
    task = place | {
        "stream": words, "kind": {"enum": list(KINDS)}, "payload": words, "inputs": ids, "outputs": ids,
        "in_place": pairs, "count": positive, "time": time, "flops": number, "workspace": number,
    }  # fmt: skip
    register = {
        "id": number, "name": words, "producer": number, "consumers": ids, "number": number, "bytes": number,
        "kind": {"enum": ["data", "ctrl", "message"]}, "memory": memory, "time_shape": ids, "initial": number,
    }  # fmt: skip
    stream = {"rank": number, "name": words, "kind": {"enum": ["compute", "copy", "comm"]}, "order": ids}
    message = {"register": number, "index": number, "source": number, "target": number}
    parts = {
        "tasks": _list(task, ["id", "name"]),
        "registers": _list(register, ["id", "name", "producer"]),
        "streams": _list(stream, ["rank", "name"]),
        "messages": _list(message, list(message)),
    }
    body = _object(
        {"version": {"const": VERSION}, "name": words, "iterations": positive} | parts,
        ["version", "name", "iterations", *parts],
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "refflow plan"} | body


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _list(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "array", "items": _object(properties, required)}
