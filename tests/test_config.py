"""The options: their ranges and choices, and that each is declared so that every reader of them works."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from pfb import config
from pfb.cli import options
from pfb.errors import InputError

COMMANDS = [
    config.Image, config.Clean, config.Restore, config.Convolve, config.Mask, config.Simulate, config.Info, config.ClusterSubmit,
]  # fmt: skip
REQUIRED = {
    config.Image: {"output": "out"},
    config.Clean: {"output": "out"},
    config.ClusterSubmit: {"template": "slurm", "cores": 4, "walltime": "1:00:00"},
}
FIELDS = [(c, f) for c in COMMANDS for f in fields(c)]


def make(command, **values):
    return command(**{**REQUIRED.get(command, {}), **values})


def where_it_belongs(field):
    """The algorithm that an option is one of, if it is not one of all."""
    return {"algorithm": field.metadata["only"][0]} if field.metadata["only"] else {}


@pytest.mark.parametrize("command", COMMANDS)
def test_defaults_are_legal(command):
    make(command)


def test_output_has_no_default():
    with pytest.raises(TypeError, match="output"):
        config.Clean()


def test_options_do_not_change():
    with pytest.raises(FrozenInstanceError):
        make(config.Clean).nband = 3


@pytest.mark.parametrize(("command", "field"), FIELDS, ids=lambda x: getattr(x, "name", getattr(x, "__name__", "")))
class TestEveryField:
    def test_has_one_line_of_help(self, command, field):
        text = field.metadata["help"]
        assert text.strip() == text
        assert "\n" not in text
        assert not text.endswith(".")

    def test_has_a_type_the_command_line_knows(self, command, field):
        assert options.value_type(command, field) in options.TYPES

    def test_only_numbers_have_limits(self, command, field):
        limits = {field.metadata[key] for key in ("minimum", "maximum", "above")} - {None}
        assert not limits or options.value_type(command, field) in (int, float)

    def test_refuses_what_lies_outside_its_limits(self, command, field):
        kind = options.value_type(command, field)
        bad = []
        if (low := field.metadata["minimum"]) is not None:
            bad.append((kind(low - 1), f"must be at least {low:g}"))
        if (high := field.metadata["maximum"]) is not None:
            bad.append((kind(high + 1), f"must be at most {high:g}"))
        if (above := field.metadata["above"]) is not None:
            bad.append((kind(above), f"must be greater than {above:g}"))
        if kind is float:
            bad += [(float("nan"), "must be a finite number"), (float("inf"), "must be a finite number")]
        if field.metadata["choices"]:
            bad.append(("neither", "must be one of"))
        for value, message in bad:
            with pytest.raises(InputError, match=f"--{options.spelling(field.name)} is .*{message}"):
                make(command, **{field.name: value})

    def test_accepts_the_ends_of_its_interval(self, command, field):
        for key in ("minimum", "maximum"):
            if field.metadata[key] is not None:
                make(command, **{field.name: options.value_type(command, field)(field.metadata[key])}, **where_it_belongs(field))
