"""One module per command: the only place where files, graphs and solvers meet."""
