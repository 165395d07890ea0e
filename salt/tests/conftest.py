"""
What all tests need: the returner loaded by Salt's own loader, and a Saltern to talk to.
"""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import pytest
import salt._logging.impl
import salt.config
import salt.loader

# Salt keeps what is logged before its logging is set up, to print it at the end.
salt._logging.impl.shutdown_temp_handler()

RETURNERS = pathlib.Path(__file__).parent.parent / "src" / "saltext" / "saltern" / "returners"
BINARY = pathlib.Path(
    os.environ.get("SALTERN_BIN", pathlib.Path(__file__).parents[2] / "bin" / "saltern")
)


class Loaded:
    """
    The returner's functions as Salt's loader gives them: ``loaded.get_jid(jid)``.
    """

    def __init__(self, opts, dunder_salt=None):
        self.opts = opts
        self.loader = salt.loader.returners(opts, dunder_salt or {})

    def __getattr__(self, name):
        return self.loader[f"saltern.{name}"]


def options(folder, address=None, role="master", **more):
    """
    The options of a master, a minion (role="minion") or of none (role=None).
    """
    read = {"master": salt.config.master_config, "minion": salt.config.minion_config}
    overrides = {
        "root_dir": str(folder),
        "id": "m1_master" if role == "master" else "alpha",
        "returner_dirs": [str(RETURNERS)],
        "saltern": {"address": address, "spool_dir": f"{folder}/spool"},
    }
    opts = read["minion" if role == "minion" else "master"](None)
    opts.update(overrides)
    opts.update(more)
    for key in ("cachedir", "pki_dir", "extension_modules", "sock_dir"):
        opts[key] = f"{folder}/{key}"
    os.makedirs(opts["cachedir"], exist_ok=True)
    return opts


@pytest.fixture
def short_dir():
    """
    A folder with a short name: the path of a socket ends at 107 characters.
    """
    path = tempfile.mkdtemp(prefix="st-", dir="/tmp")
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def no_process_state():
    """
    Each test begins as a new process would.
    """
    forget()
    yield
    forget()


def forget():
    """
    Make what the process holds anew, as a new process does.
    """
    for name in list(sys.modules):
        if name.startswith("_saltern_"):
            sys.modules[name].process = None


def told(caplog, level=logging.WARNING):
    """What the returner logged, from a level on; Salt itself warns of what it did not close."""
    records = [r for r in caplog.records if "saltern" in r.name and r.levelno >= level]
    return [record.getMessage() for record in records]


class Daemon:
    """
    A Saltern of our own: the real binary, in a folder of its own.
    """

    def __init__(self, folder, name="saltern.sock", http="off"):
        self.folder = folder
        self.http = http
        self.socket = f"{folder}/{name}"
        self.address = f"unix:{self.socket}"
        self.process = None
        self.log = open(f"{folder}/saltern.log", "ab")  # noqa: SIM115

    def start(self):
        command = [str(BINARY), "serve", "--data-dir", f"{self.folder}/data"]
        command += ["--listen", self.address, "--http", self.http]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        wait_for(lambda: self.process.poll() is not None or self._connects())
        assert self.process.poll() is None, "saltern did not start, see its log"
        return self

    def events(self, query="order=oldest&limit=1000"):
        """
        All events, over HTTP: no call of Salt's reads them.
        """
        events, cursor = [], ""
        while cursor is not None:
            url = f"http://{self.http}/v1/events?{query}{cursor}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                page = json.load(answer)
            events += page["events"]
            cursor = f"&cursor={page['next']}" if page.get("next") else None
        return events

    def _connects(self):
        with socket.socket(socket.AF_UNIX) as sock, contextlib.suppress(OSError):
            sock.connect(self.socket)
            return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def hang(self):
        self.process.send_signal(signal.SIGSTOP)
        stat = pathlib.Path(f"/proc/{self.process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.go_on()
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()
        self.log.close()


def wait_for(condition, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"not so within {seconds} s")
