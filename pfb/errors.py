"""The errors a user may see: one sentence that says what was given, what is needed and what to do."""


class PfbError(Exception):
    """A run that failed; the command line prints the message and exits with `exit_code`."""

    exit_code = 1


class InputError(PfbError, ValueError):
    """Bad input: an option, a file or data that cannot be used as asked."""

    exit_code = 2


class ShapeError(InputError):
    """Arrays, images or masks whose sizes do not belong together."""


class Stopped(PfbError):
    """A run that was asked to end, and has saved what it had."""

    exit_code = 143
