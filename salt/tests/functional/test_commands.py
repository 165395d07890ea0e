"""
Salt's own commands on a minion without a master, and jobs that expire.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.annex import new_jid
from tests.annex import p1
from tests.annex import p2
from tests.annex import store_return
from tests.conftest import RETURNERS
from tests.conftest import Loaded
from tests.conftest import options
from tests.conftest import wait_for


@pytest.fixture
def salt_call(daemon):
    """``salt_call("test.ping")``: what salt-call of this Salt prints as JSON."""
    config = {
        "id": "alpha",
        "root_dir": daemon.folder,
        "file_client": "local",
        "returner_dirs": [str(RETURNERS)],
        "saltern": {"address": daemon.address, "spool_dir": f"{daemon.folder}/spool"},
    }
    pathlib.Path(f"{daemon.folder}/minion").write_text(json.dumps(config), encoding="utf-8")
    command = [sys.executable, str(pathlib.Path(sys.executable).parent / "salt-call"), "--local"]
    command += ["-c", daemon.folder, "--out=json", "--no-color"]

    def call(*args):
        done = subprocess.run(
            [*command, *args], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["local"]

    return call


def test_s85_masterless_with_return_and_read_again(daemon, salt_call):
    assert salt_call("test.echo", "it's", "--return", "saltern") == "it's"
    (jid,) = salt_call("ret.get_jids", "saltern")
    ret = salt_call("ret.get_jid", "saltern", jid)["alpha"]
    assert ret["return"] == "it's"
    assert (ret["fun"], ret["retcode"], ret["success"]) == ("test.echo", 0, True)
    assert salt_call("ret.get_fun", "saltern", "test.echo") == {"alpha": "test.echo"}
    assert salt_call("ret.get_minions", "saltern") == ["alpha"]
    master = Loaded(options(daemon.folder, daemon.address))
    load = master.get_load(jid)
    assert (load["tgt"], load["arg"], load["Minions"]) == ("alpha", ["it's"], ["alpha"])


def test_a_failing_write_of_a_minion_raises_nothing(daemon, salt_call):
    daemon.kill()
    assert salt_call("test.ping", "--return", "saltern") is True
    daemon.start()
    assert len(salt_call("ret.get_jids", "saltern")) == 1
    assert not [n for n in os.listdir(f"{daemon.folder}/spool/minion") if n.endswith(".seg")]


def test_s45_s90_each_job_is_kept_as_long_as_its_master_said(daemon):
    short = Loaded(options(daemon.folder, daemon.address, keep_jobs_seconds=1))
    ever = Loaded(options(daemon.folder, daemon.address, keep_jobs_seconds=0))
    jids = {}
    for returner in (short, ever):
        jids[returner] = new_jid()
        returner.save_load(jids[returner], p1(jids[returner]), ["alpha"])
        store_return(returner, p2(jids[returner]))

    def gone():
        ever.clean_old_jobs()  # no other master's clean-up touches it, and ours does not need to
        return not ever.get_load(jids[short]) and not ever.get_jid(jids[short])

    wait_for(gone, 15)
    assert ever.get_load(jids[ever])["tgt"] == "*"
    assert list(ever.get_jids()) == [jids[ever]]
