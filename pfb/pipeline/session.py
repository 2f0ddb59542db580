"""Opens the engine that a command's options ask for, and closes what it opened."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask
from dask.system import CPU_COUNT
from distributed import Client
from distributed.comm import get_address_host_port, parse_address
from distributed.deploy import Cluster

from pfb.config import Resources
from pfb.errors import InputError, PfbError
from pfb.graph.cluster import CONFIG, ClusterEngine
from pfb.graph.engine import Engine, ThreadEngine
from pfb.kernels.memory import keep_freed_memory
from pfb.kernels.threads import set_thread_budget
from pfb.pipeline import clusters
from pfb.pipeline.budget import Size
from pfb.pipeline.reporting import Reporter

CONNECT_TIMEOUT = 30
"""Seconds to wait for a scheduler that was named by its address."""


@contextmanager
def open_engine(config: Resources, nblock: int, parking: Path, report: Reporter) -> Iterator[Engine]:
    """Open the engine of a run.

    Parameters
    ----------
    config : Resources
        With `scheduler` the cluster there is joined; with `workers` one is started, on this machine or
        where `cluster` says; else the threads of this process do the work.
    nblock : int
        Bands that are spread over the workers.
    parking : Path
        Folder for results that must outlive their worker.
    report : Reporter
        Is told where the dashboard is.

    Raises
    ------
    InputError
        If the options contradict each other, or there is no scheduler at the address.
    PfbError
        If a cluster does not start, or has too few workers for too long.
    """
    clusters.check(config)
    if not config.scheduler and not config.workers:
        nthread = config.threads_per_worker or int(CPU_COUNT)
        set_thread_budget(nthread)
        keep_freed_memory()
        engine: Engine = ThreadEngine(nthread)
        try:
            yield engine
        finally:
            engine.close()
        return
    with ExitStack() as stack:
        if config.scheduler:
            client = stack.enter_context(_join(address_of(config.scheduler)))
        else:
            stack.enter_context(dask.config.set(CONFIG))
            cluster = stack.enter_context(_closing(clusters.start(config), report))
            client = stack.enter_context(Client(cluster, set_as_default=False))
        _await_workers(client, config, report)
        report.message(f"dashboard: {client.dashboard_link}")
        engine = ClusterEngine(client, nblock, str(parking), warn=report.warning, patience=clusters.patience(config))
        if engine.monitor.page:
            report.message(f"solver page: {engine.monitor.page}")
        yield engine


def look_at(config: Resources) -> Size:
    """Return what the engine of a run would have, as far as that can be known without starting any.

    Raises
    ------
    InputError
        If the options contradict each other, or there is no scheduler at the address.
    """
    clusters.check(config)
    if not config.scheduler:
        if config.workers:
            clusters.options_of(config)
        nworker = max(config.workers, 1)
        return Size(nworker, nworker * (config.threads_per_worker or max(int(CPU_COUNT) // nworker, 1)))
    with _join(address_of(config.scheduler)) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
    if not workers:
        return Size(1, 1)
    return Size(len(workers), sum(w["nthreads"] for w in workers), min(w["memory_limit"] or 0 for w in workers))


def address_of(scheduler: str) -> str:
    """Return the address of a scheduler that is named by it, or by the file that it wrote.

    Raises
    ------
    InputError
        If there is such a file, but it is no scheduler file.
    """
    path = Path(scheduler)
    if not path.is_file():
        return scheduler
    try:
        return str(json.loads(path.read_text())["address"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"--scheduler {scheduler} is a file but not one that 'dask scheduler --scheduler-file' wrote "
            f"({type(error).__name__}): give that file, or the address of the scheduler"
        ) from error


@contextmanager
def _closing(cluster: Cluster, report: Reporter) -> Iterator[Cluster]:
    """Close a cluster at the end; if that fails it must not hide how the run has ended."""
    try:
        yield cluster
    finally:
        try:
            cluster.close()
        except Exception as error:  # dask's nannies do so if a worker that died is just being started again
            report.warning(f"the cluster did not close well ({type(error).__name__}: {error}): look for workers that are left")


def _await_workers(client: Client, config: Resources, report: Reporter) -> None:
    """Wait until a scheduler has as many workers as it shall have."""
    there, needed, patience = _count(client), clusters.needed(config), clusters.patience(config)
    if there < needed:
        report.message(f"waiting for {needed} workers, {there} are there")
        try:
            client.wait_for_workers(needed, timeout=patience or 0.1)
        except TimeoutError:
            cure = f"see why --cluster {config.cluster} starts no more" if config.cluster else "start more with 'dask worker'"
            raise PfbError(
                f"the scheduler at {client.scheduler_info()['address']} has {_count(client)} workers after "
                f"{patience:g} s but {needed} are needed: {cure}, "
                "ask for fewer with --min-workers, or wait longer with --wait-workers"
            ) from None


def _count(client: Client) -> int:
    return len(client.scheduler_info(n_workers=-1)["workers"])


def _join(address: str) -> Client:
    try:
        # The client would go on trying where nobody listens, or no such host is, until its time is up.
        if parse_address(address)[0] in ("tcp", "tls"):
            socket.create_connection(get_address_host_port(address), CONNECT_TIMEOUT).close()
        return Client(address, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"there is no dask scheduler at {address!r} ({type(error).__name__}): start one with 'dask scheduler' "
            "and give the address that it prints, e.g. tcp://127.0.0.1:8786"
        ) from error
