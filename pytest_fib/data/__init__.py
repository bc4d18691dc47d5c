"""The schema's records, in memory and in files: definitions, solutions, workloads, traces.

Knows no torch.
"""

from pytest_fib.data import _generator_kinds
from pytest_fib.data._base import Scalar as Scalar, did_you_mean as did_you_mean
from pytest_fib.data._checks import is_unnamed as is_unnamed
from pytest_fib.data._dataset import (
    file_name as file_name,
    why_lfs_pointer as why_lfs_pointer,
    write_counts as write_counts,
    write_whole as write_whole,
)
from pytest_fib.data._definition import (
    AxisConst as AxisConst,
    AxisVar as AxisVar,
    Definition as Definition,
    TensorSpec as TensorSpec,
)
from pytest_fib.data._definition_sections import (
    AxisDomain as AxisDomain,
    Tolerance as Tolerance,
    WorkloadsSection as WorkloadsSection,
)
from pytest_fib.data._dtypes import DTYPE_CLASSES as DTYPE_CLASSES, DType as DType
from pytest_fib.data._errors import (
    DataError as DataError,
    Problem as Problem,
    first_problem as first_problem,
)
from pytest_fib.data._file_lock import has_lock_within as has_lock_within
from pytest_fib.data._files import (
    LARGEST_SOURCE as LARGEST_SOURCE,
    LoadedDefinition as LoadedDefinition,
    load_definition_file as load_definition_file,
    load_solution_file as load_solution_file,
    read_definitions as read_definitions,
    read_traces as read_traces,
)
from pytest_fib.data._generator_kinds import (
    GENERATOR_KINDS as GENERATOR_KINDS,
    FixedValue as FixedValue,
    GeneratorKind as GeneratorKind,
    InputRule as InputRule,
)
from pytest_fib.data._request import (
    EXPLAIN_SECONDS as EXPLAIN_SECONDS,
    SMALL_FOR_EACH as SMALL_FOR_EACH,
    BuildRequest as BuildRequest,
    BuildResult as BuildResult,
    DefinitionError as DefinitionError,
    DefinitionFault as DefinitionFault,
    EvaluationRequest as EvaluationRequest,
    Origin as Origin,
    Outcome as Outcome,
    Precision as Precision,
    SearchRequest as SearchRequest,
    SearchResult as SearchResult,
    TensorFiles as TensorFiles,
    outcome_from_json as outcome_from_json,
    outcome_to_json as outcome_to_json,
    own_fault as own_fault,
)
from pytest_fib.data._schema import definition_schema as definition_schema
from pytest_fib.data._selection import (
    Selection as Selection,
    Served as Served,
    Shape as Shape,
)
from pytest_fib.data._sentence import (
    Circumstance as Circumstance,
    Part as Part,
    Sentence as Sentence,
)
from pytest_fib.data._solution import (
    Binding as Binding,
    BuildSpec as BuildSpec,
    Calling as Calling,
    CompileOptions as CompileOptions,
    Solution as Solution,
    SourceFile as SourceFile,
    SupportedLanguages as SupportedLanguages,
    bad_requirement as bad_requirement,
    bad_target as bad_target,
)
from pytest_fib.data._text import (
    format_distinct as format_distinct,
    shortened as shortened,
    visible as visible,
    visible_line as visible_line,
)
from pytest_fib.data._trace import (
    NOT_EVALUATED as NOT_EVALUATED,
    OUT_OF_MEMORY as OUT_OF_MEMORY,
    OWN_FAULT as OWN_FAULT,
    STATE as STATE,
    Compiled as Compiled,
    Correctness as Correctness,
    Diagnosis as Diagnosis,
    Environment as Environment,
    Evaluation as Evaluation,
    EvaluationStatus as EvaluationStatus,
    Performance as Performance,
    Trace as Trace,
)
from pytest_fib.data._trace_set import (
    DefinitionSummary as DefinitionSummary,
    TraceSet as TraceSet,
    TraceSetSummary as TraceSetSummary,
)
from pytest_fib.data._trace_set_files import Export as Export
from pytest_fib.data._user_cache import cache_directory as cache_directory, write_json as write_json
from pytest_fib.data._workload import (
    INPUTS as INPUTS,
    LAYOUTS as LAYOUTS,
    LENGTHS as LENGTHS,
    NEAR as NEAR,
    ON_REQUEST as ON_REQUEST,
    REGIMES as REGIMES,
    VALUE_PATTERNS as VALUE_PATTERNS,
    InputSpec as InputSpec,
    RandomInput as RandomInput,
    SafetensorsInput as SafetensorsInput,
    ScalarInput as ScalarInput,
    Workload as Workload,
)
from pytest_fib.data._yaml import compose as compose, compose_family as compose_family

kinds = _generator_kinds
