"""Reads files of views: one file or every file of a folder, to the views that they declare and every mistake in them.

Invariant: names are unique over the whole folder. The sidecar (`validate`, `run`, `replay`) calls it before
`headrace.views.compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.views.data_tests import checks_of
from headrace.views.datalog_text.grammar import parse_program
from headrace.views.datalog_text.syntax import query_key
from headrace.views.spec import ViewSpec
from headrace.views.view_models import OutputModel, UnitTest, ViewModel, ViewsFile
from headrace.views.yaml_models import nearest, validate
from headrace.views.yaml_reader import ConfigError, Document, read_yaml


@dataclass(frozen=True)
class Loaded:
    """A folder of views as far as it can be read. `unread`: names of views in whose declaration a mistake is."""

    specs: tuple[ViewSpec, ...]
    mistakes: tuple[ConfigError, ...]
    unread: frozenset[str]


def load(path: Path) -> tuple[ViewSpec, ...]:
    """The views of a file or folder. Raises ConfigError for the first mistake, the rest in `others`."""
    loaded = read(path)
    if loaded.mistakes:
        first, *others = loaded.mistakes
        first.others = tuple(others)
        raise first
    return loaded.specs


def read(path: Path) -> Loaded:
    """The views of a file, or of every `*.yaml` and `*.yml` below a folder, in order of path, then of writing, and every mistake.

    Names that begin with a dot are passed over: Kubernetes keeps a ConfigMap's real files in `..2026_11_25…`, and
    links to them beside it. Raises ConfigError where there is no such folder.
    """
    if path.is_dir():
        found = (f for f in path.rglob("*") if f.suffix in (".yaml", ".yml") and f.is_file())
        files: Sequence[Path] = sorted(f for f in found if not _hidden(f.relative_to(path)))
    elif path.is_file():
        files = [path]
    else:
        raise ConfigError("no such file or folder of views", file=path, hint="set `views:` to a folder of YAML files")
    specs: dict[str, ViewSpec] = {}
    mistakes: list[ConfigError] = []
    unread: set[str] = set()
    for file in files:
        document = None
        try:
            document = read_yaml(file, interpolate=False, env={})
            models = validate(document, ViewsFile).views
        except ConfigError as error:
            mistakes += (error, *error.others)
            unread |= set() if document is None else _names(document)
            continue
        for index, model in enumerate(models):
            try:
                made = _specs(document, index, model)
            except ConfigError as error:
                mistakes.append(error)
                unread.add(model.name)
                continue
            for spec in made:
                for check in checks_of(spec):
                    specs.setdefault(check.name, check)
                first = specs.setdefault(spec.name, spec)
                if first is not spec:
                    mistakes.append(_declared_twice(document, index, spec.name, first))
    return Loaded(tuple(specs.values()), tuple(mistakes), frozenset(unread))


def _declared_twice(document: Document, index: int, name: str, first: ViewSpec) -> ConfigError:
    place = document.place(("views", index, "name"))
    what = f"view {name} is declared twice, first in {first.file} line {first.line}"
    return ConfigError(
        what,
        file=document.path,
        line=place.line,
        column=place.column,
        field=f"views[{index}].name",
        hint="rename one of them",
    )


def _names(document: Document) -> set[str]:
    """The names that a file of views gives, as far as they can be seen."""
    views = document.value.get("views") if isinstance(document.value, dict) else None
    named = (view.get("name") for view in views if isinstance(view, dict)) if isinstance(views, list) else ()
    return {name for name in named if isinstance(name, str)}


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _specs(document: Document, index: int, model: ViewModel) -> tuple[ViewSpec, ...]:
    """The view of a model, or those of a program."""
    key, named = ("datalog", model.datalog_file) if model.is_program else ("sql", model.sql_file)
    trail = ("views", index, key)
    text, file = (model.datalog if model.is_program else model.sql) or "", document.path
    locate: Callable[[int], tuple[int, int]] | None = None
    if named is None:

        def locate(offset: int) -> tuple[int, int]:
            return document.locate(trail, offset)

    else:
        file = document.path.parent / named
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            line = document.place(("views", index, f"{key}_file")).line
            what, field_name = f"cannot read {file}: {reason}", f"views[{index}].{key}_file"
            raise ConfigError(what, file=document.path, line=line, field=field_name, value=named) from None
    spec = ViewSpec(
        name=model.name,
        sql=text,
        file=str(file),
        description=model.description,
        key=model.key,
        sinks=model.sinks,
        columns=model.columns,
        indexes=model.indexes,
        grants=model.grants,
        tags=model.tags,
        meta=model.meta,
        rounds=model.limits.rounds,
        rows=model.limits.rows,
        unstratified=model.unstratified,
        recursion=model.recursion,
        freshness=model.freshness,
        line=document.place(("views", index)).line,
        tests=_tests(document, ("views", index), model.tests),
        locate=locate,
    )
    return _program(document, index, model, spec) if model.is_program else (spec,)


def _tests(
    document: Document, trail: tuple[str | int, ...], tests: Sequence[UnitTest]
) -> tuple[tuple[UnitTest, int], ...]:
    return tuple((t, document.place((*trail, "tests", i)).line) for i, t in enumerate(tests))


def _program(document: Document, index: int, model: ViewModel, whole: ViewSpec) -> tuple[ViewSpec, ...]:
    """The views of a program. One without any that can be read is one view, in which its mistakes are told."""
    found = programs_views(whole)
    known = {s.relation.removeprefix("constraint ").removeprefix("query "): s for s in found}
    for name in model.outputs:
        if name not in known:
            line = document.place(("views", index, "outputs", name)).line
            what = f"{whole.name} puts out no relation {name}"
            field_name = f"views[{index}].outputs.{name}"
            raise ConfigError(
                what, file=document.path, line=line, field=field_name, hint=nearest(name, known) or f".output {name}"
            )
    made = []
    for name, spec in known.items():
        more = model.outputs.get(name, OutputModel())
        trail = ("views", index, "outputs", name)
        made.append(
            replace(
                spec,
                description=more.description or spec.description,
                key=more.key,
                sinks=spec.sinks if more.sinks is None else more.sinks,
                columns=more.columns,
                indexes=more.indexes,
                grants=spec.grants if more.grants is None else more.grants,
                tests=_tests(document, trail, more.tests),
            )
        )
    return tuple(made)


def programs_views(whole: ViewSpec) -> tuple[ViewSpec, ...]:
    """The views of a program's text: one a relation that it puts out, one a question that a table asks, one a constraint, which
    no sink gets by itself.

    >>> text = ".input a = t  b(x) :- a(x).  .output a, b  .constraint none: b(x), x > 1."
    >>> [(s.name, s.relation) for s in programs_views(ViewSpec("b", text))]
    [('b_a', 'a'), ('b', 'b'), ('b_none', 'constraint none')]
    """
    program = parse_program(whole.sql)
    found: dict[str, ViewSpec] = {}
    for output in program.outputs:
        # A relation of the program's own name is the view of that name.
        name = whole.name if output.name == whole.name else f"{whole.name}_{output.name}"
        found.setdefault(output.name, replace(whole, name=name, program=whole.name, relation=output.name))
    for query in program.queries:
        if query.asked is not None and query.name not in found:
            name = f"{whole.name}_{query.name}"
            found[query.name] = replace(whole, name=name, program=whole.name, relation=query_key(query.name))
    for constraint in program.constraints:
        relation = f"constraint {constraint.name}"
        told = f"{constraint.name} of {whole.name}"
        name = f"{whole.name}_{constraint.name}"
        own = replace(whole, name=name, program=whole.name, relation=relation, check=told, sinks=(), grants=())
        found.setdefault(relation, own)
    return tuple(found.values()) or (replace(whole, program=whole.name, relation=whole.name),)
