"""Files to named arrays and back; no operators and no solvers."""
