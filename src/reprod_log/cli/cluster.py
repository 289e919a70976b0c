"""Measuring on a Dask cluster that is already running somewhere: `reprod compare --dask ADDRESS`."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from reprod_log.errors import MissingPackage, UsageError

_PATIENCE = "10s"


@contextmanager
def cluster_executor(address: str | None) -> Iterator[Executor | None]:
    """An executor whose workers are those of the cluster at `address`; None without an address."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
        from distributed.comm.addressing import parse_host_port
    except ImportError as error:
        raise MissingPackage(f"--dask needs Dask ({error}): pip install 'reprod_log[dask]'") from error
    try:
        if "://" not in address:
            # A client of an address that is none is left half made, and complains when it is let go of.
            parse_host_port(address)
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {address!r} ({type(error).__name__}: {error}). Start one with "
            "`dask scheduler` and workers with `dask worker`, and give the address it prints, e.g. tcp://host:8786"
        ) from error
    try:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise UsageError(f"the Dask cluster at {address} has no workers; start some with `dask worker {address}`")
        yield client.get_executor(pure=False)
    finally:
        client.close()
