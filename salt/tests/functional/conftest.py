import pytest
import salt.loader

from tests.conftest import BINARY
from tests.conftest import Daemon
from tests.conftest import Loaded
from tests.conftest import options


@pytest.fixture
def daemon(short_dir):
    if not BINARY.exists():
        pytest.skip(f"no {BINARY}: build it with `make build`, or name it with SALTERN_BIN")
    daemon = Daemon(short_dir).start()
    yield daemon
    daemon.stop()


@pytest.fixture
def master(daemon):
    return Loaded(options(daemon.folder, daemon.address))


@pytest.fixture
def minion(daemon):
    return Loaded(options(daemon.folder, daemon.address, role="minion"))


@pytest.fixture
def jobs(master):
    """
    Salt's runner over the master's job cache: ``jobs("list_jobs", search_function="test.*")``.
    """
    opts = {**master.opts, "master_job_cache": "saltern"}
    with open(f"{opts['root_dir']}/master", "w", encoding="utf-8"):
        opts["conf_file"] = f"{opts['root_dir']}/master"
    runners = salt.loader.runner(opts)

    def run(function, *args, **kwargs):
        return runners[f"jobs.{function}"](*args, **kwargs)

    return run
