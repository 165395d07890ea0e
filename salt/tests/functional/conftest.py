import pytest

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
