"""
The stores of the returners, real ones on loopback, each in a folder of its own.
"""

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RETURNERS = ROOT / "salt" / "src" / "saltext" / "saltern" / "returners"


@dataclasses.dataclass
class At:
    """Where a store is."""

    host: str = "127.0.0.1"
    port: int = 0
    folder: str = ""
    socket: str = ""
    returners: str = str(RETURNERS)


class Stores:
    """Starts stores when they are first asked for, and stops them all."""

    def __init__(self, folder, only=None):
        self.folder = pathlib.Path(folder)
        self.only = only
        self.places = {}
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return self.stack.__exit__(*args)

    def at(self, name):
        """Where a store is, once it answers; None for none."""
        if name is None:
            return None
        if name not in self.places:
            print(f"starting {name}", flush=True)
            self.places[name] = getattr(self, f"_{name}")(self._folder(name))
        return self.places[name]

    def away(self, name):
        """Where such a store would be, and nothing is."""
        if name is None:
            return None
        folder = self._folder(f"{name}-away")
        return At(port=free_port(), folder=str(folder), socket=str(folder / "none.sock"))

    def _folder(self, name):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _redis(self, folder):
        return self._testbed("redis", folder)

    def _cassandra(self, folder):
        return self._testbed("cassandra", folder)

    def _testbed(self, store, folder):
        """Those that testbed/ starts: it knows how."""
        program = folder / "saltern-testbed"
        subprocess.run(["go", "build", "-o", program, "./testbed/saltern-testbed"], cwd=ROOT, check=True)
        log = folder / "log"
        with log.open("wb") as out:
            process = self._spawn([program, store], out)
        address = wait_for(
            lambda: re.search(rf"^{store} … \S*?([\d.]+):(\d+) \(", log.read_text(), re.M),
            process,
            log,
            240,
        )
        return At(address[1], int(address[2]), str(folder))

    def _postgres(self, folder):
        programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        initdb = shutil.which("initdb") or (programs and str(programs[-1]))
        if not initdb:
            raise SystemExit("needed for pgjsonb: PostgreSQL. Debian: apt-get install postgresql")
        postgres = pathlib.Path(initdb).with_name("postgres")
        data, port = folder / "data", free_port()
        # PostgreSQL refuses root; Debian's package has made a user for it.
        as_user = []
        if os.geteuid() == 0:
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
            for parent in (self.folder, folder):
                parent.chmod(0o755)
            shutil.chown(folder, "postgres", "postgres")
        password = folder / "password"
        password.write_text("salt\n")
        password.chmod(0o644)
        init = [
            initdb,
            "-D",
            data,
            "-U",
            "salt",
            "--auth=md5",
            f"--pwfile={password}",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run([*as_user, *init], check=True, stdout=subprocess.DEVNULL)
        log = folder / "log"
        with log.open("wb") as out:
            serve = [postgres, "-D", data, "-p", str(port), "-h", "127.0.0.1", "-k", folder]
            process = self._spawn([*as_user, *serve], out)
        wait_for(lambda: "ready to accept connections" in log.read_text(), process, log)
        return At(port=port, folder=str(folder))

    def _saltern(self, folder):
        program = os.environ.get("SALTERN_BIN", str(ROOT / "bin" / "saltern"))
        sock = folder / "s.sock"
        log = folder / "log"
        with log.open("wb") as out:
            command = [
                program,
                "serve",
                "--data-dir",
                folder / "data",
                "--listen",
                f"unix:{sock}",
                "--http",
                "off",
            ]
            process = self._spawn(command, out)
        wait_for(lambda: sock.exists(), process, log)
        return At(folder=str(folder), socket=str(sock))

    def _spawn(self, command, out):
        process = subprocess.Popen(
            [str(part) for part in command], stdout=out, stderr=subprocess.STDOUT, cwd=self.folder
        )

        def stop():
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

        self.stack.callback(stop)
        return process


def wait_for(condition, process, log, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit(f"{process.args[0]} is not ready; its log:\n{log.read_text()[-2000:]}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
