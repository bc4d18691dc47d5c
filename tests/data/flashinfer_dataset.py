"""FlashInfer's own reading of a dataset, by the rules that its data model has.

Written from these rules and apart from what exports: unknown keys are ignored, numbers are lax, and
one record that breaks a rule makes the whole dataset unreadable.
"""

import ast
import json
import math
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, model_validator

Name = Annotated[str, Field(min_length=1)]
Positive = Annotated[float, Field(ge=0)]


def not_negative(value: float) -> float:
    if not (math.isnan(value) or value >= 0):
        raise ValueError("must be non-negative or NaN")
    return value


Error = Annotated[float, AfterValidator(not_negative)]
DTYPES = frozenset(
    {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1"}
    | {"int64", "int32", "int16", "int8", "bool"}
)


def known(name: str) -> str:
    if name not in DTYPES:
        raise ValueError(name)
    return name


class Tensor(BaseModel):
    shape: tuple[Name, ...] | None
    dtype: Annotated[str, AfterValidator(known)]
    description: str | None = None


class Axis(BaseModel):
    type: Literal["const", "var"] | None = None
    value: Annotated[int, Field(ge=0)] | None = None


class TheirDefinition(BaseModel):
    name: Name
    op_type: Name
    axes: dict[Name, Axis]
    inputs: dict[Name, Tensor]
    outputs: dict[Name, Tensor]
    reference: Name
    tags: list[Name] = []
    constraints: list[Name] = []

    @model_validator(mode="after")
    def check(self):
        body = ast.parse(self.reference, mode="exec").body
        assert any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in body)
        assert not self.inputs.keys() & self.outputs.keys()
        for text in self.constraints:
            ast.parse(text, mode="eval")
        for tensor in (*self.inputs.values(), *self.outputs.values()):
            assert set(tensor.shape or ()) <= set(self.axes)
        for axis in self.axes.values():
            assert axis.type != "const" or axis.value is not None
        return self


class Source(BaseModel):
    path: Name
    content: Name


class Spec(BaseModel):
    language: Literal["python", "triton", "cpp", "cuda", "tilelang"]
    target_hardware: Annotated[list[str], Field(min_length=1)]
    entry_point: Name
    dependencies: list[Name] = []
    destination_passing_style: bool = True
    binding: Literal["tvm-ffi", "torch"] | None = None


class TheirSolution(BaseModel):
    name: Name
    definition: Name
    author: Name
    spec: Spec
    sources: Annotated[list[Source], Field(min_length=1)]

    @model_validator(mode="after")
    def check(self):
        paths = [source.path for source in self.sources]
        assert len(set(paths)) == len(paths)
        assert not any(PurePosixPath(p).is_absolute() or ".." in Path(p).parts for p in paths)
        file, _ = self.spec.entry_point.split("::")
        assert file in paths
        return self


class Input(BaseModel):
    type: Literal["random", "scalar", "safetensors"] | None = None
    value: int | float | bool | None = None
    path: Name | None = None
    tensor_key: Name | None = None

    @model_validator(mode="after")
    def check(self):
        assert self.type != "scalar" or self.value is not None
        assert self.type != "safetensors" or (self.path and self.tensor_key)
        return self


class TheirWorkload(BaseModel):
    axes: dict[str, Annotated[int, Field(ge=0)]]
    inputs: dict[str, Input]
    uuid: Name


class Errors(BaseModel):
    max_relative_error: Error = 0.0
    max_absolute_error: Error = 0.0
    extra: dict[str, Any] | None = None


class Times(BaseModel):
    latency_ms: Positive = 0.0
    reference_latency_ms: Positive = 0.0
    speedup_factor: Positive = 0.0


class Where(BaseModel):
    hardware: Name
    libs: dict[str, str] = {}


class TheirEvaluation(BaseModel):
    status: Literal[
        "PASSED",
        "INCORRECT_SHAPE",
        "INCORRECT_NUMERICAL",
        "INCORRECT_DTYPE",
        "RUNTIME_ERROR",
        "COMPILE_ERROR",
        "TIMEOUT",
    ]
    environment: Where
    timestamp: Name
    log: str = ""
    correctness: Errors | None = None
    performance: Times | None = None

    @model_validator(mode="after")
    def check(self):
        has = (self.correctness is not None, self.performance is not None)
        wanted = {"PASSED": (True, True), "INCORRECT_NUMERICAL": (True, False)}
        if has != wanted.get(self.status, (False, False)):
            raise ValueError(f"{self.status} with {has}")
        return self


class TheirTrace(BaseModel):
    definition: Name
    workload: TheirWorkload
    solution: str | None = None
    evaluation: TheirEvaluation | None = None


def read_as_flashinfer(root: Path) -> dict[str, list[Any]]:
    """Every record under the four folders. Raises where FlashInfer's loader would."""
    found = {
        "definitions": _files(root / "definitions", TheirDefinition),
        "solutions": _files(root / "solutions", TheirSolution),
        "workloads": _lines(root / "workloads"),
        "traces": _lines(root / "traces"),
    }
    for kind in ("definitions", "solutions"):
        names = [record.name for record in found[kind]]
        assert len(set(names)) == len(names)
    assert all(t.solution is None and t.evaluation is None for t in found["workloads"])
    assert all(t.solution is not None or t.evaluation is not None for t in found["traces"])
    return found


def _files(folder: Path, model: type[BaseModel]) -> list[Any]:
    return [model.model_validate_json(path.read_text()) for path in sorted(folder.rglob("*.json"))]


def _lines(folder: Path) -> list[Any]:
    texts = [text for path in sorted(folder.rglob("*.jsonl")) for text in path.open()]
    assert all(json.loads(text) for text in texts)
    return [TheirTrace.model_validate_json(text) for text in texts]
