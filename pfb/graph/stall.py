"""Waiting for results, with an eye on the cluster: a run that gets nowhere says why, and one that cannot is given up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

from distributed import Client, Future, wait

from pfb.errors import PfbError
from pfb.graph.names import stage_of

PATIENCE = 60.0
"""Seconds without any worker after which a run is given up, by default."""
LOOK = 5.0
"""Seconds without a result after which the cluster is looked at."""
LONG = 600.0
"""Seconds after which a task that goes on running is worth a word."""


class State(NamedTuple):
    """What a scheduler says."""

    moves: int
    """Changes of the state of any task so far."""
    workers: int
    paused: int
    """Workers that take no tasks, since their memory is nearly full."""
    homeless: int
    """Tasks that no worker may run."""
    running: tuple[Any, ...]
    """Keys of tasks that workers have."""


def state_of(dask_scheduler: Any) -> State:
    """Return the state of the scheduler that calls this."""
    workers = list(dask_scheduler.workers.values())
    return State(
        moves=dask_scheduler.transition_counter,
        workers=len(workers),
        paused=sum(w.status.name == "paused" for w in workers),
        homeless=len(dask_scheduler.unrunnable),
        running=tuple(task.key for w in workers for task in w.processing),
    )


class Watch:
    """Waits for futures of a client.

    Parameters
    ----------
    client : Client
        A connected client.
    warn : callable
        Is told why nothing is done.
    patience : float
        Seconds without any worker, or with paused ones and no progress, after which a run is given up.
    """

    def __init__(self, client: Client, warn: Callable[[str], None], patience: float) -> None:
        self.client, self.warn, self.patience = client, warn, patience

    def wait(self, futures: Sequence[Future], advance: Callable[[int], None] | None) -> None:
        """Wait until all are done; `advance` is told how many have come since.

        Raises
        ------
        PfbError
            If there has been no worker for too long, or workers were paused and nothing was done.
        Exception
            That of a task that failed.
        """
        pending = set(futures)
        moves, since, told = -1, monotonic(), ""
        while pending:
            # `wait` asks for the current client; ours is not made the default, for that would change dask's scheduler too.
            with self.client.as_current():
                try:
                    done, pending = wait(pending, timeout=LOOK, return_when="FIRST_COMPLETED")
                except TimeoutError:
                    done = set()
            for future in done:
                if future.status != "finished":
                    future.result()
            if done:
                moves, since = -1, monotonic()
                if advance is not None:
                    advance(len(done))
                continue
            state: State = self.client.run_on_scheduler(state_of)
            # A worker that comes and goes moves tasks to and fro without getting anywhere, but then there was one.
            if state.moves != moves and state.workers:
                moves, since, told = state.moves, monotonic(), ""
                continue
            idle = monotonic() - since
            if idle > self.patience:
                give_up(state, idle)
            why = reason(state, idle)
            if why != told:
                told = why
                if why:
                    self.warn(why)


def give_up(state: State, idle: float) -> None:
    """Raise `PfbError` if nothing can change any more: nobody is there, or paused workers have nothing that they could let go."""
    if not state.workers:
        raise PfbError(f"all workers have been gone for {idle:.0f} s: start others, and run again")
    if state.paused:
        raise PfbError(f"nothing was done for {idle:.0f} s: {reason(state, idle)}")


def reason(state: State, idle: float) -> str:
    """Say why nothing has been done for `idle` seconds; nothing if that is how it should be."""
    if not state.workers:
        return "all workers are gone: waiting for others"
    if state.paused:
        return (
            f"{state.paused} of {state.workers} workers are paused, since their memory is nearly full: "
            "give them more, or make the image smaller (--npix)"
        )
    if state.homeless:
        return f"{state.homeless} tasks wait for a worker that is gone"
    if idle > LONG and state.running:
        stages = sorted({stage_of(key) if isinstance(key, tuple) else str(key) for key in state.running})
        return f"{', '.join(stages)} have been running for more than {LONG / 60:.0f} minutes"
    return ""
