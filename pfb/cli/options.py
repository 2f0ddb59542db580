"""Config fields become command-line options, YAML keys and lines of the help.

Order of precedence: the command line, then the file given with ``--config``, then the defaults.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Collection, Iterator
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

import click

from pfb.config import Config
from pfb.errors import InputError

TYPES: dict[type, click.ParamType] = {bool: click.BOOL, int: click.INT, float: click.FLOAT, str: click.STRING}
NEEDED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
NULL = "tag:yaml.org,2002:null"


class Option(click.Option):
    """A config field as an option of the command line."""

    def __init__(self, config: type[Config], field: Field[Any]) -> None:
        kind = value_type(config, field)
        name = spelling(field.name)
        if kind is bool:
            spellings = [f"--{name}/--no-{name}"]
        else:
            spellings = [*([short] if (short := field.metadata["short"]) else []), f"--{name}"]
        # click takes an explicit None for a default, so a required option must be given none at all.
        default = {"required": True} if field.default is MISSING else {"default": field.default}
        choices = field.metadata["choices"]
        super().__init__(
            [*spellings, field.name],
            type=click.Choice(choices) if choices else TYPES[kind],
            metavar=field.metadata["metavar"],
            multiple=repeated(config, field),
            help=describe(config, field),
            **default,
        )
        self.section = section(config, field).__name__
        # The description says the default and the limits; click would say the first once more.
        self.show_default = False

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return nothing: `describe` has said it all."""
        return {}


class Command(click.Command):
    """A command whose help lists the options under the heading of the class that declares them."""

    def __init__(self, name: str, config: type[Config], **settings: Any) -> None:
        super().__init__(name, help=config.__doc__, **settings)
        self.config = config

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, section by section."""
        order = [c.__name__ for c in (*self.config.__mro__[1:], self.config)]
        sections: dict[str, list[tuple[str, str]]] = {title: [] for title in (*order, "General")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                sections[getattr(param, "section", "General")].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(f"{title} options"):
                    formatter.write_dl(records)


def parameters(config: type[Config]) -> list[click.Parameter]:
    """List the options of one command: its config fields, and ``--config`` to read them from a file."""
    options: list[click.Parameter] = [Option(config, f) for f in fields(config)]
    if not options:
        return []
    file = click.Option(
        ["--config"],
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        help="read options from this YAML file, whose keys are their names; the command line overrules it",
        callback=lambda ctx, param, path: _read_defaults(ctx, path, config),
    )
    return [*options, file]


def spelling(name: str) -> str:
    """Spell a field's name as the command line does."""
    return name.replace("_", "-")


def command_name(config: type[Config]) -> str:
    """Return the words of the command whose options a class holds: ClusterSubmit is that of ``cluster submit``."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", config.__name__).lower()


def value_type(config: type[Config], field: Field[Any]) -> type:
    """Return the type of a field's values, None aside; of one of them if there may be several."""
    hint = type_hints(config)[field.name]  # type: ignore[arg-type]  # mypy takes the class for an instance
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (arg for arg in get_args(hint) if arg is not type(None))
    return get_args(hint)[0] if get_origin(hint) is tuple else hint


def repeated(config: type[Config], field: Field[Any]) -> bool:
    """Say whether an option may be given several times."""
    origin: Any = get_origin(type_hints(config)[field.name])  # type: ignore[arg-type]
    return origin is tuple


@cache
def type_hints(config: type[Config]) -> dict[str, Any]:
    """Evaluate the annotations of a class: once, since every field asks and it takes longer than all else at start."""
    return get_type_hints(config)


def section(config: type[Config], field: Field[Any]) -> type:
    """Return the class that declares a field."""
    return next(c for c in config.__mro__ if field.name in vars(c).get("__annotations__", {}))


def describe(config: type[Config], field: Field[Any]) -> str:
    """Say what a field means, its default and its limits, in one line."""
    notes = []
    if field.default is MISSING:
        notes.append("required")
    elif value_type(config, field) is bool:
        notes.append(f"default: {'on' if field.default else 'off'}")
    elif field.default is not None and not repeated(config, field):
        default = field.default
        notes.append(f"default: {default:g}" if isinstance(default, float) else f"default: {default}")
    low, high, above = (field.metadata[key] for key in ("minimum", "maximum", "above"))
    if low is not None and high is not None:
        notes.append(f"{low:g} to {high:g}")
    elif low is not None:
        notes.append(f"at least {low:g}")
    elif high is not None:
        notes.append(f"at most {high:g}")
    if above is not None:
        notes.append(f"above {above:g}")
    if field.metadata["only"]:
        notes.append(f"{', '.join(field.metadata['only'])} only")
    return field.metadata["help"] + (f"  [{'; '.join(notes)}]" if notes else "")


def read_yaml(path: str, config: type[Config]) -> dict[str, Any]:
    """Read the options of a command from a YAML file.

    A value is read as it would be on the command line, so that ``1e-3`` is a number, ``field: 1``
    names a field and a list stands for its members joined by commas; an empty value or ``null``
    leaves the default. The section of a nested option stays YAML, as it would be typed. `InputError`
    names the file, the line and the key.
    """
    known = {f.name: f for f in fields(config)}
    sections = {name for name, f in known.items() if f.metadata["nested"]}
    switches = {f"no_{f.name}" for f in fields(config) if value_type(config, f) is bool}
    values: dict[str, Any] = {}
    for line, key, given in _entries(path, sections):
        where = f"{path} line {line}"
        name = key.replace("-", "_")
        negated = name in switches
        if not negated and name not in known:
            close = [spelling(n) for n in difflib.get_close_matches(name, [*known, *switches], n=3)]
            hint = f"did you mean {' or '.join(close)}?" if close else f"see 'pfb {command_name(config)} --help'"
            raise InputError(f"{where}: unknown option '{key}'; {hint}")
        name = name.removeprefix("no_") if negated else name
        if name in values:
            raise InputError(f"{where}: option '{key}' is given twice; keep one of the two")
        if given is not None:
            value = _convert(given, known[name], config, f"{where}: option '{key}'")
            values[name] = not value if negated else value
    return values


def _entries(path: str, sections: Collection[str]) -> Iterator[tuple[int, str, str | list[str] | None]]:
    """Yield line, key and value of a YAML file, as the text that stands there; only `sections` may have structure."""
    import yaml

    try:
        with open(path, encoding="utf-8") as file:
            root = yaml.compose(file, Loader=yaml.SafeLoader)
    except OSError as error:
        raise InputError(f"cannot read the configuration file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from error
    if root is None:
        return
    if not isinstance(root, yaml.MappingNode):
        raise InputError(f"{path} must hold options as 'name: value' lines, and nothing else")
    for key, node in root.value:
        line = key.start_mark.line + 1
        if isinstance(key, yaml.ScalarNode) and key.value.replace("-", "_") in sections and node.tag != NULL:
            if not isinstance(node, yaml.MappingNode):
                raise InputError(f"{path} line {line}: '{key.value}' must be a section of 'name: value' lines below it")
            yield line, key.value, yaml.serialize(node)
            continue
        members = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(n, yaml.ScalarNode) for n in (key, *members)):
            raise InputError(f"{path} line {line}: an option is a word, a number or a list of them, without more structure")
        if isinstance(node, yaml.SequenceNode):
            yield line, key.value, [member.value for member in members]
        else:
            yield line, key.value, None if node.tag == NULL else node.value


def _convert(given: str | list[str], field: Field[Any], config: type[Config], where: str) -> Any:
    """Convert a value by the rules of the command line."""
    kind = value_type(config, field)
    choices = field.metadata["choices"]
    needed = f"one of {', '.join(choices)}" if choices else NEEDED[kind]
    if isinstance(given, list) and (kind is not str or choices):
        raise InputError(f"{where} is a list but must be {needed}")
    if repeated(config, field):
        return tuple(given) if isinstance(given, list) else (given,)
    text = ",".join(given) if isinstance(given, list) else given
    option = Option(config, field)
    try:
        return option.type.convert(text, option, None)
    except click.BadParameter as error:
        raise InputError(f"{where} is '{text}' but must be {needed}") from error


def _read_defaults(ctx: click.Context, path: str | None, config: type[Config]) -> None:
    if path is not None:
        ctx.default_map = read_yaml(path, config)
