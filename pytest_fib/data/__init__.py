"""The schema: definitions, solutions, workloads and traces, in memory and in files."""

from ._definition import Axis, AxisConst, AxisVar, Definition, DType, TensorSpec
from ._errors import DataError, Problem
from ._files import LoadedDefinition, load_definition_file, load_solution_file, read_traces
from ._rules import FORMS, ODD_LAYOUTS, Form, is_of
from ._solution import BuildSpec, Solution, SourceFile, SupportedLanguages
from ._trace import (
    Correctness,
    Environment,
    Evaluation,
    EvaluationStatus,
    Performance,
    Trace,
    validate_flashinfer,
)
from ._workload import InputSpec, RandomInput, SafetensorsInput, ScalarInput, Workload
from ._workloads_section import AxisDomain, InputRule, Tolerance, WorkloadsSection

__all__ = [
    "FORMS",
    "ODD_LAYOUTS",
    "Axis",
    "AxisConst",
    "AxisDomain",
    "AxisVar",
    "BuildSpec",
    "Correctness",
    "DType",
    "DataError",
    "Definition",
    "Environment",
    "Evaluation",
    "EvaluationStatus",
    "Form",
    "InputRule",
    "InputSpec",
    "LoadedDefinition",
    "Performance",
    "Problem",
    "RandomInput",
    "SafetensorsInput",
    "ScalarInput",
    "Solution",
    "SourceFile",
    "SupportedLanguages",
    "TensorSpec",
    "Tolerance",
    "Trace",
    "Workload",
    "WorkloadsSection",
    "is_of",
    "load_definition_file",
    "load_solution_file",
    "read_traces",
    "validate_flashinfer",
]
