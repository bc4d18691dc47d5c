"""Code that claims to compute a definition."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, TypeAlias

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import Field, ValidationInfo, field_validator, model_validator

from ._base import (
    CheckedRecord,
    OptionalList,
    OptionalText,
    Raw,
    Record,
    Size,
    Text,
    Violation,
    did_you_mean,
    is_none,
    part,
    refuse,
)

Calling: TypeAlias = Literal["value", "destination", "tuple"]
Binding: TypeAlias = Literal["tvm-ffi", "torch"]
_ARCHITECTURE_NAME = re.compile(r"sm_\d{2,3}[af]?")
#: What is meant for such a name, whether it is one or not.
_LIKE_ARCHITECTURE = re.compile(r"(?:sm|compute)[_-]?(?:\d|$)|sm_", re.IGNORECASE)


@dataclass(frozen=True)
class LanguageFacts:
    """All that is known of a language.

    - ``builder``: the module of ``build`` that makes its programs callable.
    - ``extra``: this package's extra that installs what the language needs; ``requires``, the
      distributions in it that must be installed; ``compilers``, those that no distribution brings.
    - ``compiled``: what a program is compiled from before it is loaded: its sources, one function,
      or one function for arguments of certain shapes and dtypes. Empty if it isn't.
    - ``cache``: the environment variable with the folder of what is compiled when called.
    - ``for_cuda``: it runs on CUDA alone. ``interpreted``: on the CPU it runs in an interpreter.
    """

    builder: str = "_python"
    extra: str = ""
    requires: tuple[str, ...] = ()
    compilers: tuple[Literal["c++", "nvcc"], ...] = ()
    compiled: Literal["", "sources", "function", "function for arguments"] = ""
    cache: str = ""
    for_cuda: bool = False
    interpreted: bool = False


_OF_PYTHON = LanguageFacts()


class SupportedLanguages(StrEnum):
    """The languages of implementations."""

    PYTHON = "python"
    TRITON = "triton", LanguageFacts("_triton", cache="TRITON_CACHE_DIR", interpreted=True)
    CPP = (
        "cpp",
        LanguageFacts("_native", "cuda", ("apache-tvm-ffi",), ("c++",), compiled="sources"),
    )
    CUDA = (
        "cuda",
        LanguageFacts("_native", "cuda", ("apache-tvm-ffi",), ("c++", "nvcc"), compiled="sources"),
    )
    TILELANG = (
        "tilelang",
        LanguageFacts(
            "_tilelang",
            extra="tilelang",
            requires=("tilelang", "apache-tvm-ffi"),
            compilers=("c++", "nvcc"),
            compiled="function",
            cache="TILELANG_CACHE_DIR",
            for_cuda=True,
        ),
    )
    CUTEDSL = (
        "cutedsl",
        LanguageFacts(
            "_cutedsl",
            extra="cutedsl",
            requires=("nvidia-cutlass-dsl", "apache-tvm-ffi"),
            compilers=("c++",),
            compiled="function for arguments",
            for_cuda=True,
        ),
    )

    facts: LanguageFacts

    def __new__(cls, name: str, facts: LanguageFacts = _OF_PYTHON) -> "SupportedLanguages":
        language = str.__new__(cls, name)
        language._value_ = name
        language.facts = facts
        return language


def bad_requirement(text: str) -> str | None:
    """Why pip could not read a dependency, or None where it could."""
    try:
        Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        return f"{text!r} is not a requirement such as 'torch>=2.6': {reason}"
    return None


def bad_target(name: str) -> str | None:
    """Why a name is misspelt; those of devices are many, those of architectures follow a rule."""
    if not name.isprintable():
        return f"{name!r} is not the name of a device"
    if not _LIKE_ARCHITECTURE.match(name) or _ARCHITECTURE_NAME.fullmatch(name.lower()):
        return None
    return f"{name!r} is not an architecture, such as sm_90 or sm_90a"


def _same_file(path: str) -> str:
    return str(PurePosixPath(path))


def unsafe_path(path: str) -> str | None:
    """Why a source path may leave its folder, or None where it can't."""
    if PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor:
        return f"{path!r} should be a relative path"
    if ".." in PureWindowsPath(path).parts:
        return f"{path!r} should have no '..'"
    return None


def _not_file_and_symbol(entry_point: str) -> str | None:
    parts = entry_point.split("::")
    if len(parts) == 2 and all(parts):
        return None
    return f"{entry_point!r} should read file::symbol"


#: A flag as other tools write it.
_FLAGS = {
    **dict.fromkeys(("1", "1.0", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "0.0", "false", "f", "no", "n", "off"), False),
}


class SourceFile(Record):
    """One file of an implementation; `path` is relative, with forward slashes."""

    path: Annotated[Text, refuse(unsafe_path)]
    content: str


class CompileOptions(Record):
    """Flags for the C++ compiler, for nvcc, and for the linker."""

    cflags: OptionalList = Field(default_factory=list)
    cuda_cflags: OptionalList = Field(default_factory=list)
    ld_flags: OptionalList = Field(default_factory=list)


class BuildSpec(Record):
    """How to turn an implementation's sources into something callable.

    `calling` is how it is called: ``value`` returns its outputs, ``destination`` takes them as its
    last arguments, ``tuple`` takes one tuple of inputs then outputs. Not given, it follows from
    `destination_passing_style`; given, it decides that. `binding` None is the language's default.
    `include_paths` are folders of headers, absolute or relative to the implementation's own.
    `supported_major_versions` are the major compute capabilities that it runs on; empty is any.
    """

    language: SupportedLanguages
    target_hardware: Annotated[list[Annotated[str, refuse(bad_target)]], Field(min_length=1)]
    entry_point: Annotated[Text, refuse(_not_file_and_symbol)]
    dependencies: list[Annotated[Text, refuse(bad_requirement)]] = Field(default_factory=list)
    destination_passing_style: Annotated[bool, Field(strict=True)] = True
    binding: Annotated[Binding | None, Field(exclude_if=is_none)] = None
    compile_options: Annotated[CompileOptions | None, Field(exclude_if=is_none)] = None
    include_paths: OptionalList = Field(default_factory=list)
    supported_major_versions: Annotated[
        list[Size], Field(exclude_if=lambda versions: not versions)
    ] = Field(default_factory=list)
    # The schema's own flag says all but "tuple".
    calling: Annotated[
        Calling | None,
        Field(validate_default=True, exclude_if=lambda calling: calling != "tuple"),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _calling_decides(cls, data: Raw) -> Raw:
        if not isinstance(data, Mapping) or data.get("calling") is None:
            return data
        return {**data, "destination_passing_style": data["calling"] == "destination"}

    @field_validator("calling")
    @classmethod
    def _resolve(cls, calling: str | None, info: ValidationInfo) -> str:
        in_place = info.data.get("destination_passing_style", True)
        return calling or ("destination" if in_place else "value")


class Solution(CheckedRecord):
    """An implementation as a record, sources included."""

    OWN = tuple(
        ("spec", key)
        for key in ("calling", "compile_options", "include_paths", "supported_major_versions")
    )

    name: Text
    definition: Text
    author: Text
    spec: BuildSpec
    sources: list[SourceFile]
    description: OptionalText = None

    @property
    def entry_file(self) -> str:
        """The file of the entry point, as `sources` spells it."""
        entry = _same_file(self.spec.entry_point.split("::")[0])
        return next(file.path for file in self.sources if _same_file(file.path) == entry)

    @property
    def entry_symbol(self) -> str:
        """The function of the entry point."""
        return self.spec.entry_point.split("::")[1]

    @classmethod
    def _usual_form(cls, data: Raw) -> Raw:
        spec = part(data, "spec")
        in_place = part(spec, "destination_passing_style")
        known = _FLAGS.get(str(in_place).lower())
        if known is None or not isinstance(spec, Mapping):
            return data
        return {**data, "spec": {**spec, "destination_passing_style": known}}

    @classmethod
    def _violations(cls, data: Mapping[str, Any]) -> Iterator[Violation]:
        sources = part(data, "sources")
        if not isinstance(sources, (list, tuple)):
            return
        paths = [part(file, "path") for file in sources]
        files = [_same_file(path) if isinstance(path, str) else None for path in paths]
        for i, file in enumerate(files):
            if file is not None and file in files[:i]:
                yield Violation(("sources", i), f"{paths[i]!r} is given twice")
        entry = part(part(data, "spec"), "entry_point")
        named = entry.partition("::")[0] if isinstance(entry, str) and "::" in entry else ""
        if named and _same_file(named) not in files:
            near = did_you_mean(named, [name for name in files if name])
            yield Violation(("spec", "entry_point"), f"no file {named!r} among the sources{near}")
