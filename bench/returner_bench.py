"""
Drive Saltern and Salt's own local_cache as the workers of a master do, and compare them.

Both are measured in one run, in turns, with the same jobs: a figure of one run is not to be held against one of
another. A round is this: WORKERS processes at once publish JOBS jobs each and store the return of each of MINIONS
minions with salt.utils.job.store_job, as MWorker does; a share of the jobs are highstates of 30 states. Then each
worker reads loads and results, recent jobs more often. Saltern fsyncs every write before it answers; local_cache
does not fsync.

    python bench/returner_bench.py --saltern bin/saltern --returner salt/src/saltext/saltern/returners/saltern.py

The Python is one with Salt. Nothing listens on the network; everything is in a temporary folder.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import salt.config
import salt.minion
import salt.utils.job
import salt.version

CALLS = ("prep_jid", "save_load", "store_job", "get_load", "get_jid")
#: What is promised: Saltern against local_cache in one run.
TARGETS = {
    "returns/s": ("at least", 3.0),
    "get_load": ("at most", 0.5),
    "get_jid": ("at most", 0.5),
}


def highstate(states):
    """The return of a minion for a run of that many states, a third of which changed something."""
    diff = {"diff": "--- \n+++ \n@@ -1,2 +1,2 @@\n-listen = it's old\n+listen = it's new\n"}
    return {
        f"file_|-conf_{n}_|-/etc/app/conf_{n}.d_|-managed": {
            "name": f"/etc/app/conf_{n}.d",
            "changes": {} if n % 3 else diff,
            "result": True,
            "comment": f"File /etc/app/conf_{n}.d is in the correct state",
            "__sls__": "app.conf",
            "__run_num__": n,
            "start_time": f"10:12:33.{n:06}",
            "duration": 12.5 + n,
            "__id__": f"conf_{n}",
        }
        for n in range(states)
    }


class Worker:
    """What one worker process of a master does with its job cache, and how long each call took."""

    def __init__(self, opts, number, plan):
        self.opts = opts
        self.plan = plan
        self.random = random.Random(number)
        self.minion = salt.minion.MasterMinion(opts, states=False, rend=False)
        self.cache = opts["master_job_cache"]
        self.took = {call: [] for call in CALLS}
        self.jids = []

    def call(self, function, *args, **kwargs):
        return self.timed(function, self.minion.returners[f"{self.cache}.{function}"], *args, **kwargs)

    def timed(self, name, function, *args, **kwargs):
        start = time.perf_counter()
        answer = function(*args, **kwargs)
        self.took[name].append(time.perf_counter() - start)
        return answer

    def write(self):
        """Run the jobs; gives the returns stored a second."""
        ids = [f"minion{n}" for n in range(self.plan.minions)]
        states = highstate(30)
        start = time.perf_counter()
        for _ in range(self.plan.jobs):
            heavy = self.random.random() < self.plan.heavy
            function, result = ("state.apply", states) if heavy else ("test.ping", True)
            jid = self.call("prep_jid", nocache=False)
            load = {
                "cmd": "publish",
                "tgt": "*",
                "tgt_type": "glob",
                "fun": function,
                "arg": [],
                "ret": "",
                "jid": jid,
                "user": "root",
                "kwargs": {"delimiter": ":", "show_timeout": True, "show_jid": False},
            }
            self.call("save_load", jid, load, minions=ids)
            self.jids.append(jid)
            for one in ids:
                ret = {
                    "cmd": "_return",
                    "id": one,
                    "jid": jid,
                    "fun": function,
                    "fun_args": [],
                    "retcode": 0,
                    "success": True,
                    "return": result,
                    "_stamp": "2026-12-01T10:12:33.000000",
                }
                self.timed("store_job", salt.utils.job.store_job, self.opts, ret, mminion=self.minion)
        return self.plan.jobs * self.plan.minions / (time.perf_counter() - start)

    def read(self):
        """Look jobs up, and hold the answers against what was written."""
        for _ in range(self.plan.loads):
            jid = self.recent()
            load = self.call("get_load", jid)
            assert load["jid"] == jid and len(load["Minions"]) == self.plan.minions, (jid, load)
        for _ in range(self.plan.results):
            jid = self.recent()
            results = self.call("get_jid", jid)
            assert len(results) == self.plan.minions, (jid, sorted(results))

    def recent(self):
        """A job, the newer the likelier."""
        back = int(self.random.expovariate(0.2))
        return self.jids[-1 - min(back, len(self.jids) - 1)]


def work(opts, number, plan, start, written, answers):
    worker = Worker(opts, number, plan)
    start.wait()
    rate = worker.write()
    # Reads begin when all have written, so that no read is measured beside writes of one cache only.
    written.wait()
    worker.read()
    answers.put((rate, worker.took))


def measure(opts, plan):
    """One round with one cache: returns a second of all workers, and the seconds of each call."""
    context = multiprocessing.get_context("fork")
    start, written = context.Barrier(plan.workers), context.Barrier(plan.workers)
    answers = context.Queue()
    processes = [
        context.Process(target=work, args=(opts, n, plan, start, written, answers)) for n in range(plan.workers)
    ]
    for process in processes:
        process.start()
    parts = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    took = {call: [one for _, part in parts for one in part[call]] for call in CALLS}
    return sum(rate for rate, _ in parts), took


@contextlib.contextmanager
def daemon(program, folder):
    """Saltern with its store in the folder; gives its address."""
    address = f"unix:{folder}/saltern.sock"
    http = f"127.0.0.1:{random.randint(20000, 32000)}"
    with open(f"{folder}/saltern.log", "wb") as log:
        process = subprocess.Popen(
            [program, "serve", "--data-dir", f"{folder}/data", "--listen", address, "--http", http],
            stdout=log,
            stderr=log,
        )
        try:
            wait_ready(process, f"http://{http}/readyz", log.name)
            yield address
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)


def wait_ready(process, url, log):
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (OSError, urllib.error.URLError) as error:
            if process.poll() is not None or time.monotonic() > deadline:
                with open(log) as text:
                    raise SystemExit(f"saltern is not ready ({error}):\n{text.read()}") from error
        time.sleep(0.01)


def master_opts(folder, cache, returner, address):
    """The configuration of a master that is never started."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "master")
    with open(path, "w") as config:
        json.dump(
            {
                "root_dir": folder,
                "cachedir": f"{folder}/cache",
                "sock_dir": f"{folder}/run",
                "pki_dir": f"{folder}/pki",
                "log_file": f"{folder}/log",
                "extension_modules": f"{folder}/ext",
                "master_job_cache": cache,
                "returner_dirs": [os.path.dirname(os.path.abspath(returner))],
                "saltern": {"address": address, "spool_dir": f"{folder}/spool"},
            },
            config,
        )
    return salt.config.master_config(path)


def spooled(folder):
    """The bytes that wait in a spool: with a healthy daemon none."""
    return sum(
        os.path.getsize(os.path.join(where, name))
        for where, _, names in os.walk(f"{folder}/spool")
        for name in names
        if name.endswith(".spool")
    )


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def report(rounds, plan, load, out):
    """Write the comparison as Markdown; gives whether every target is met. Figures of a busy machine say little."""
    rates = {cache: [rate for rate, _ in rounds[cache]] for cache in rounds}
    middle = {cache: statistics.median(rates[cache]) for cache in rounds}
    ratio = middle["saltern"] / middle["local_cache"]
    print(
        f"Salt {salt.version.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores,"
        f" load before it {load:.0f},",
        file=out,
    )
    print(
        f"{plan.rounds} rounds in turns, {plan.workers} worker(s) x {plan.jobs} jobs x {plan.minions} minions,"
        f" {plan.heavy:.0%} highstates of 30 states. p50 / p99 of all calls, in µs.\n",
        file=out,
    )
    print("| | local_cache | saltern, each write fsynced | ratio | target |", file=out)
    print("|---|---|---|---|---|", file=out)
    met = [row(out, "returns/s", f"{middle['local_cache']:.0f}", f"{middle['saltern']:.0f}", ratio)]
    for call in CALLS:
        took = {cache: [one for _, part in rounds[cache] for one in part[call]] for cache in rounds}
        p50 = {cache: percentile(took[cache], 0.5) for cache in rounds}
        shown = {cache: f"{p50[cache] * 1e6:.0f} / {percentile(took[cache], 0.99) * 1e6:.0f}" for cache in rounds}
        met.append(
            row(
                out,
                call,
                shown["local_cache"],
                shown["saltern"],
                p50["saltern"] / p50["local_cache"],
            )
        )
    print("\nReturns a second of each round: ", end="", file=out)
    print(
        "; ".join(f"{cache} {', '.join(f'{rate:.0f}' for rate in rates[cache])}" for cache in rates),
        file=out,
    )
    return all(met)


def row(out, name, stock, ours, ratio):
    target, met = "", True
    if name in TARGETS:
        word, limit = TARGETS[name]
        met = ratio >= limit if word == "at least" else ratio <= limit
        target = f"{word} {limit:g}: {'met' if met else 'missed'}"
    print(f"| {name} | {stock} | {ours} | {ratio:.2f} | {target} |", file=out)
    return met


def main():
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--saltern", required=True, help="the program")
    parser.add_argument("--returner", required=True, help="saltern.py")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=50, help="of each worker in a round")
    parser.add_argument("--minions", type=int, default=20)
    parser.add_argument("--heavy", type=float, default=0.2, help="share of jobs that are highstates")
    parser.add_argument("--loads", type=int, default=1000, help="get_load calls of each worker in a round")
    parser.add_argument("--results", type=int, default=300, help="get_jid calls of each worker in a round")
    parser.add_argument("--check", action="store_true", help="end with 1 when a target is missed")
    plan = parser.parse_args()
    load = os.getloadavg()[0]
    folder = tempfile.mkdtemp(prefix="sb-")
    try:
        with daemon(os.path.abspath(plan.saltern), folder) as address:
            opts = {
                cache: master_opts(f"{folder}/{cache}", cache, plan.returner, address)
                for cache in ("local_cache", "saltern")
            }
            rounds = {cache: [] for cache in opts}
            for n in range(plan.rounds):
                # Each goes first every other round.
                for cache in sorted(opts, reverse=bool(n % 2)):
                    rounds[cache].append(measure(opts[cache], plan))
                    print(
                        f"round {n + 1} {cache}: {rounds[cache][-1][0]:.0f} returns/s",
                        file=sys.stderr,
                    )
            if spooled(f"{folder}/saltern"):
                raise SystemExit("Saltern did not take all writes: some are in the spool, and no figure counts")
        met = report(rounds, plan, load, sys.stdout)
    finally:
        shutil.rmtree(folder)
    return 0 if met or not plan.check else 1


if __name__ == "__main__":
    sys.exit(main())
