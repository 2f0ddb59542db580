"""Write docs/options.md, the reference of all options, from pfb/config: ``python docs/options.py``."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from pfb import config
from pfb.cli import options

COMMANDS = (
    config.Image, config.Clean, config.Plan, config.Check, config.Restore, config.Convolve, config.Mask,
    config.Fit, config.Predict, config.Regrid, config.Simulate, config.Info, config.ClusterSubmit,
)  # fmt: skip
TARGET = Path(__file__).with_suffix(".md")
PREAMBLE = """\
# Options

Written from `pfb/config` by `make docs`; do not edit it here.

On the command line an option is `--name VALUE`, a switch `--name` or `--no-name`. In the file that `--config` names it
is a line `name: VALUE` (`true` or `false` for a switch; an option that takes YAML is a section). The command line
overrules the file, the file overrules the defaults. Every command but `info` takes `--config FILE`; all take `--debug`
and `--help`.
"""
LIMITS = {"minimum": ">=", "above": ">", "maximum": "<="}


def value(command: type[config.Config], field: Field[Any]) -> str:
    """Say what an option takes."""
    if field.metadata["choices"]:
        return ", ".join(f"`{choice}`" for choice in field.metadata["choices"])
    names = {bool: "switch", int: "integer", float: "number", str: "text"}
    kind = options.value_type(command, field)
    given = f"`{field.metadata['metavar']}`" if field.metadata["metavar"] else names[kind]
    limits = [f"{sign} {field.metadata[key]:g}" for key, sign in LIMITS.items() if field.metadata[key] is not None]
    return ", ".join([given, *limits])


def default(field: Field[Any]) -> str:
    """Say what an option is when it is not given."""
    if field.default is MISSING:
        return "required"
    if field.default is None or field.default == ():
        return ""
    if isinstance(field.default, bool):
        return "on" if field.default else "off"
    return f"`{field.default:g}`" if isinstance(field.default, float) else f"`{field.default}`"


def row(command: type[config.Config], field: Field[Any]) -> str:
    """Write the line of one option."""
    name = f"`--{options.spelling(field.name)}`"
    if field.metadata["short"]:
        name = f"`{field.metadata['short']}`, {name}"
    cells = [name, value(command, field), default(field), field.metadata["help"]]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def render() -> str:
    """Write the whole reference."""
    lines = [PREAMBLE]
    told: set[type] = set()
    for command in COMMANDS:
        lines += [f"## pfb {options.command_name(command)}", "", str(command.__doc__), ""]
        sections: dict[type, list[Field[Any]]] = {c: [] for c in (*command.__mro__[1:-1], command)}
        for field in fields(command):
            sections[options.section(command, field)].append(field)
        again = [f"[{c.__name__.lower()}](#{c.__name__.lower()})" for c, members in sections.items() if members and c in told]
        if again:
            lines += [f"The options of {', '.join(again)} are as above; its own are:", ""]
        for section, members in sections.items():
            if not members or section in told:
                continue
            told.add(section)
            if section is not command:
                lines += [f"### {section.__name__}", "", str(section.__doc__), ""]
            lines += ["| option | takes | default | meaning |", "|---|---|---|---|"]
            lines += [*(row(command, field) for field in members), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(render())
