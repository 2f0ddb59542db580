"""What the command line draws: bars on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import io
import re
import threading

import pytest

from pfb.cli.console import Console, duration, rate
from pfb.errors import PfbError
from pfb.pipeline.reporting import Reporter


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


def play(report):
    """Use a reporter as a pipeline would."""
    with report.stage("grid", 3) as advance:
        for _ in range(3):
            advance(1)
    report.message("a [b] message")
    report.warning("cell is large")
    for cycle in range(2):
        with report.stage("cg", 2) as advance:
            advance(2)
        report.row({"cycle": cycle, "peak": 29.84 / 10**cycle, "rms": -1.234567e-05, "note": "ok"})
    report.summary("Made", {"image": "out-image-mfs.fits", "model cube": "/a/long/path/" + 40 * "name/" + "x.fits"})


class TestConsole:
    def test_is_a_reporter(self):
        report: Reporter = Console(stream=io.StringIO())
        for name in vars(Reporter):
            if not name.startswith("_"):
                assert callable(getattr(report, name))

    def test_without_a_terminal_the_lines_are_plain(self):
        stream = io.StringIO()
        play(Console(stream=stream))
        text = re.sub(r"\d\.\d s", "0.0 s", stream.getvalue())
        assert text == (
            "grid                3/3         0.0 s\n"
            "a [b] message\n"
            "warning: cell is large\n"
            "cg                  2/2         0.0 s\n"
            "cycle        peak         rms  note\n"
            "    0       29.84  -1.235e-05  ok\n"
            "    1       2.984  -1.235e-05  ok\n"
            "\n"
            "Made\n"
            "  image       out-image-mfs.fits\n"
            "  model cube  /a/long/path/" + 40 * "name/" + "x.fits\n"
        )

    def test_no_variable_brings_control_characters(self, monkeypatch):
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        stream = io.StringIO()
        play(Console(stream=stream))
        assert "\x1b" not in stream.getvalue()

    def test_a_terminal_has_bars_that_vanish_and_the_same_lines(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        stream = Screen()
        play(Console(stream=stream))
        text = stream.getvalue()
        assert "\x1b[" in text
        assert "3/3" in text
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
        assert "warning: cell is large\n" in plain
        assert "cycle        peak         rms  note\n" in plain
        # the cursor that the bars hide is shown again
        assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")

    def test_a_dumb_terminal_has_no_bars(self, monkeypatch):
        monkeypatch.setenv("TERM", "dumb")
        stream = Screen()
        play(Console(stream=stream))
        assert "\x1b" not in stream.getvalue()

    def test_an_error_in_a_stage_takes_its_bar_away(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        stream = Screen()
        report = Console(stream=stream)

        def fail():
            with report.stage("grid", 3):
                raise PfbError("no")

        with pytest.raises(PfbError, match="no"):
            fail()
        assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")

    def test_stages_may_be_nested(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        stream = Screen()
        report = Console(stream=stream)
        with report.stage("outer", 2) as outer, report.stage("inner", 0) as inner:
            inner(5)
            outer(2)
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
        assert "inner                 5 " in plain
        assert "outer               2/2 " in plain
        assert stream.getvalue().rfind("\x1b[?25h") > stream.getvalue().rfind("\x1b[?25l")

    def test_quiet_says_nothing(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        for stream in (io.StringIO(), Screen()):
            play(Console(quiet=True, stream=stream))
            assert stream.getvalue() == ""

    def test_a_long_stage_shows_that_it_lives(self):
        stream = io.StringIO()
        with Console(stream=stream, interval=0.0).stage("grid", 4) as advance:
            advance(1)
            advance(3)
        first, second, last = stream.getvalue().splitlines()
        assert re.fullmatch(r"grid                1/4  \S+/s  \S+ s left", first)
        assert re.fullmatch(r"grid                4/4  \S+/s", second)
        assert last.startswith("grid                4/4 ")

    def test_many_threads_may_count(self):
        stream = io.StringIO()
        with Console(stream=stream).stage("grid", 4000) as advance:
            threads = [threading.Thread(target=lambda: [advance(1) for _ in range(1000)]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert "4000/4000" in stream.getvalue()

    def test_new_columns_bring_a_new_header(self):
        stream = io.StringIO()
        report = Console(stream=stream)
        report.row({"cycle": 0})
        report.row({"cycle": 1, "rms": float("nan")})
        assert stream.getvalue() == "cycle\n    0\ncycle         rms\n    1         nan\n"

    def test_a_table_without_names(self):
        stream = io.StringIO()
        Console(stream=stream).table("a.ms", ["", ""], [("rows", 12), ("scans", "1~3")])
        assert stream.getvalue() == "a.ms\n  rows   12\n  scans  1~3\n\n"

    def test_a_table_without_rows(self):
        stream = io.StringIO()
        Console(stream=stream).table("Scans", ["number", "rows"], [])
        assert stream.getvalue() == "Scans\n  number  rows\n\n"

    @pytest.mark.parametrize(
        ("seconds", "text"),
        [
            (0.04, "0.0 s"),
            (59.9, "59.9 s"),
            (59.96, "1 min 00 s"),
            (61.4, "1 min 01 s"),
            (119.9, "2 min 00 s"),
            (3599.9, "1 h 00 min"),
            (9000, "2 h 30 min"),
        ],
    )
    def test_durations(self, seconds, text):
        assert duration(seconds) == text

    def test_rates(self):
        assert [rate(x) for x in (None, 0.0, 12.345, 0.02)] == ["", "", "12.3/s", "50 s each"]
