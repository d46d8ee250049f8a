"""Arguments given by name (`make_date(year => 2024, month => 2, day => 1)`, or by `:=`), put at their places.

Always: what has a default and is left out has it; a name that the function does not have is refused. Called by the handlers
of functions.
"""

from __future__ import annotations

from sqlglot import exp

from headrace.views.sql.binder import Binder

_FROM, _MATCHED = "from_json", "target path vars={} silent=false"
_PATTERN = "string pattern"
_SPELLED: dict[str, tuple[str, ...]] = {
    "make_interval": ("years=0 months=0 weeks=0 days=0 hours=0 mins=0 secs=0",),
    "make_date": ("year month day",),
    "make_time": ("hour min sec",),
    "make_timestamp": ("year month mday hour min sec",),
    "make_timestamptz": ("year month mday hour min sec", "year month mday hour min sec timezone"),
    "array_sort": ("array descending", "array descending nulls_first"),
    "parse_ident": ("str strict=true",),
    "jsonb_set": ("jsonb_in path replacement create_if_missing=true",),
    "jsonb_set_lax": ("jsonb_in path replacement create_if_missing=true null_value_treatment=use_json_null",),
    "jsonb_insert": ("jsonb_in path replacement insert_after=false",),
    **dict.fromkeys(("json_strip_nulls", "jsonb_strip_nulls"), ("target strip_in_arrays=false",)),
    **{f"json{b}_{what}": (_FROM,) for b in ("", "b") for what in ("array_elements", "array_elements_text", "each", "each_text")},
    **{f"jsonb_path_{what}": (_MATCHED,) for what in ("exists", "match", "query", "query_array", "query_first")},
    **{f"regexp_{what}": (_PATTERN, f"{_PATTERN} flags") for what in (
        "like", "match", "matches", "split_to_array", "split_to_table")},
    "regexp_count": (_PATTERN, f"{_PATTERN} start", f"{_PATTERN} start flags"),
    "regexp_replace": (f"{_PATTERN} replacement", f"{_PATTERN} replacement flags", f"{_PATTERN} replacement start",
                       f"{_PATTERN} replacement start N", f"{_PATTERN} replacement start N flags"),
    "regexp_instr": tuple(f"{_PATTERN}{' start N endoption flags subexpr'[:k]}" for k in (0, 6, 8, 18, 24, 32)),
    "regexp_substr": tuple(f"{_PATTERN}{' start N flags subexpr'[:k]}" for k in (0, 6, 8, 14, 22)),
}  # fmt: skip
"""The names of each form's arguments, with the defaults that they have."""


def positional(binder: Binder, node: exp.Expr) -> list[exp.Expr]:
    """The arguments of a call in their order, those given by name at their places. Raises ViewError."""
    given = list(node.expressions)
    if not any(isinstance(arg, exp.Kwarg | exp.PropertyEQ) for arg in given):
        return given
    called, places, named = str(node.this).lower(), list[exp.Expr](), dict[str, exp.Expr]()
    for arg in given:
        if not isinstance(arg, exp.Kwarg | exp.PropertyEQ):
            if named:
                binder.source.refuse(arg, "positional argument cannot follow named argument")
            places.append(arg)
            continue
        name = _name(arg)
        if name in named:
            binder.source.refuse(arg, f'argument name "{name}" used more than once')
        named[name] = arg.expression
    forms = [[part.partition("=") for part in form.split()] for form in _SPELLED.get(called, ())]
    for form in forms:
        rest = form[len(places) :]
        wanted = {name for name, _, default in rest if not default}
        if len(places) <= len(form) and wanted <= set(named) <= {name for name, *_ in rest}:
            return places + [named[name] if name in named else _default(text) for name, _, text in rest]
    names = sorted({name for form in forms for name, *_ in form})
    unknown = next((a for a in given if isinstance(a, exp.Kwarg | exp.PropertyEQ) and _name(a) not in names), node)
    what = f"no argument {_name(unknown)} here" if unknown is not node else "other arguments"
    hint = f"one of {', '.join(names)}" if names else "give the arguments by their places"
    return binder.source.refuse(unknown, f"{called}() has {what}", hint)


def _name(arg: exp.Expr) -> str:
    """The name that an argument is given by; sqlglot drops the quotes of the one that has a capital."""
    written = str(arg.this.name)
    return written if written == "N" else written.lower()


def _default(text: str) -> exp.Expr:
    if text in ("true", "false"):
        return exp.Boolean(this=text == "true")
    return exp.Literal.number(text) if text.isdigit() else exp.Literal.string(text)
