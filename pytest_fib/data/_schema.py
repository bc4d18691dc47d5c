"""A JSON schema of definition files, for editors that complete and check YAML."""

from __future__ import annotations

from typing import Any

from ._definition import Definition

#: Counts changes by which a file that was right may be so no longer.
VERSION = 1
#: What a family's variable may stand in place of: any value that is no list and no mapping.
_VARIABLE_SCHEMA = {"type": "string", "pattern": r"\$\{\w+\}"}
_PLAIN_TYPES = {"integer", "number", "boolean"}


def definition_schema() -> dict[str, Any]:
    """The JSON schema of a definition file, with short forms, but without rules across keys.

    It is the records' own schema, with what is read in another form than it is kept.
    """
    schema: dict[str, Any] = _for_files(Definition.model_json_schema())
    models = schema["$defs"]
    for model in models.values():
        if "kind" in model.get("properties", {}):
            model.setdefault("required", []).append("kind")
    fixed = models["FixedValue"]
    del fixed["properties"]["kind"]
    fixed["required"].remove("kind")
    size = {"type": "integer", "minimum": 0}
    long_forms = [{"$ref": f"#/$defs/{model}"} for model in ("AxisVar", "AxisConst")]
    axis = {"anyOf": [{"const": "var"}, size, _VARIABLE_SCHEMA, *long_forms]}
    schema["properties"]["axes"]["additionalProperties"] = axis
    models["TensorSpec"]["properties"]["shape"] = {
        "anyOf": [{"type": "array", "items": {"type": ["string", "integer"]}}, {"type": "null"}]
    }
    schema["properties"]["family"] = {
        "description": "Names and their values; ${name} stands for each in turn.",
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Kernel definition of pytest-fib, version {VERSION}",
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _for_files(schema: Any) -> Any:
    """Unknown keys refused, as in files; plain values may be variables; no titles made of names."""
    if isinstance(schema, list):
        return [_for_files(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    needed = {key: value for key, value in schema.items() if key not in ("title", "discriminator")}
    if needed.get("type") in _PLAIN_TYPES or "enum" in needed:
        return {"anyOf": [needed, _VARIABLE_SCHEMA]}
    changed = {key: _for_each(key, value) for key, value in needed.items()}
    if "properties" in changed:
        changed.setdefault("additionalProperties", False)
    return changed


def _for_each(key: str, value: Any) -> Any:
    """The value of a key of a schema; of some, it is schemas by names."""
    if key in ("properties", "$defs"):
        return {name: _for_files(each) for name, each in value.items()}
    return _for_files(value)
