"""The schema's records, in memory and in files: definitions, solutions, workloads, traces.

Knows no torch.
"""

from pytest_fib.data import _generator_kinds as kinds
from pytest_fib.data._checks import is_unnamed
from pytest_fib.data._dataset import file_name, write_counts
from pytest_fib.data._definition import AxisConst, AxisVar, Definition, TensorSpec
from pytest_fib.data._dtypes import DTYPE_CLASSES, DType
from pytest_fib.data._errors import DataError, Problem
from pytest_fib.data._file_lock import has_lock_within
from pytest_fib.data._files import (
    LoadedDefinition,
    load_definition_file,
    load_solution_file,
    read_definitions,
    read_traces,
)
from pytest_fib.data._generator_kinds import GENERATOR_KINDS, FixedValue, GeneratorKind, InputRule
from pytest_fib.data._request import (
    BuildRequest,
    BuildResult,
    DefinitionError,
    DefinitionFault,
    EvaluationRequest,
    Origin,
    Outcome,
    SearchRequest,
    SearchResult,
    TensorFiles,
    outcome_from_json,
    outcome_to_json,
    own_fault,
)
from pytest_fib.data._schema import definition_schema
from pytest_fib.data._selection import Selection, Served
from pytest_fib.data._solution import (
    Binding,
    BuildSpec,
    Calling,
    CompileOptions,
    Solution,
    SourceFile,
    SupportedLanguages,
    bad_requirement,
    bad_target,
)
from pytest_fib.data._text import visible, visible_line
from pytest_fib.data._trace import (
    NOT_EVALUATED,
    Compiled,
    Correctness,
    Diagnosis,
    Environment,
    Evaluation,
    EvaluationStatus,
    Performance,
    Trace,
)
from pytest_fib.data._trace_set import DefinitionSummary, TraceSet, TraceSetSummary
from pytest_fib.data._trace_set_files import Export
from pytest_fib.data._user_cache import cache_directory, write_json
from pytest_fib.data._workload import (
    INPUTS,
    LAYOUTS,
    LENGTHS,
    ON_REQUEST,
    REGIMES,
    VALUE_PATTERNS,
    InputSpec,
    RandomInput,
    SafetensorsInput,
    ScalarInput,
    Workload,
)
from pytest_fib.data._workloads_section import AxisDomain, Tolerance, WorkloadsSection
from pytest_fib.data._yaml import compose, compose_family

__all__ = [
    "DTYPE_CLASSES",
    "GENERATOR_KINDS",
    "INPUTS",
    "LAYOUTS",
    "LENGTHS",
    "NOT_EVALUATED",
    "ON_REQUEST",
    "REGIMES",
    "VALUE_PATTERNS",
    "AxisConst",
    "AxisDomain",
    "AxisVar",
    "Binding",
    "BuildRequest",
    "BuildResult",
    "BuildSpec",
    "Calling",
    "CompileOptions",
    "Compiled",
    "Correctness",
    "DType",
    "DataError",
    "Definition",
    "DefinitionError",
    "DefinitionFault",
    "DefinitionSummary",
    "Diagnosis",
    "Environment",
    "Evaluation",
    "EvaluationRequest",
    "EvaluationStatus",
    "Export",
    "FixedValue",
    "GeneratorKind",
    "InputRule",
    "InputSpec",
    "LoadedDefinition",
    "Origin",
    "Outcome",
    "Performance",
    "Problem",
    "RandomInput",
    "SafetensorsInput",
    "ScalarInput",
    "SearchRequest",
    "SearchResult",
    "Selection",
    "Served",
    "Solution",
    "SourceFile",
    "SupportedLanguages",
    "TensorFiles",
    "TensorSpec",
    "Tolerance",
    "Trace",
    "TraceSet",
    "TraceSetSummary",
    "Workload",
    "WorkloadsSection",
    "bad_requirement",
    "bad_target",
    "cache_directory",
    "compose",
    "compose_family",
    "definition_schema",
    "file_name",
    "has_lock_within",
    "is_unnamed",
    "kinds",
    "load_definition_file",
    "load_solution_file",
    "outcome_from_json",
    "outcome_to_json",
    "own_fault",
    "read_definitions",
    "read_traces",
    "visible",
    "visible_line",
    "write_counts",
    "write_json",
]
