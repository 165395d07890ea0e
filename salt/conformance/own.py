"""
Salt's own tests, unmodified, with local_cache and with Saltern as the masters' job cache.

Those that are fair to any returner: they go through the CLI, runners, netapi and minions, and do not look into
local_cache's folders.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import xml.etree.ElementTree

from . import services

VERSIONS = ("3008.4", "3006.29")

FAIR = [
    "integration/runners/test_jobs.py",
    "integration/runners/test_manage_status.py",
    "integration/runners/test_saltutil.py",
    "integration/netapi/rest_cherrypy/test_jobs.py",
    "integration/netapi/rest_tornado/test_jobs_api_handler.py",
    "integration/minion/test_return_retries.py",
    "integration/minion/test_startup_states.py",
    "integration/cli/test_batch.py",
    "integration/cli/test_batch_options.py",
    "integration/cli/test_salt_call.py",
    "integration/cli/test_salt_run.py",
    "integration/returners/test_noop_return.py",
    "integration/modules/state/test_state_queue.py",
    "scenarios/syndic/sync/test_syndic.py",
    "scenarios/syndic/cluster/test_syndic.py",
]


def run(environment):
    """Runs them all and gives the part of the page that says what came out."""
    counts = {}
    for version in VERSIONS:
        for cache in ("local_cache", "saltern"):
            print(f"Salt's own tests, {version}, {cache}", flush=True)
            counts[version, cache] = _suite(version, cache, environment(f"suite-{version}"))
    return _section(counts)


def _suite(version, cache, python):
    """{file: [passed, failed, skipped]} of one version and one job cache."""
    made = subprocess.run(
        [services.ROOT / "testbed/pyenv/salt-source", version],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    source = pathlib.Path(made.stdout.split()[-1])
    files = [f"tests/pytests/{f}" for f in FAIR if (source / "tests/pytests" / f).exists()]
    # Salt's suite keeps its scripts in the folder for temporary files, and paths of sockets are short.
    with (
        tempfile.TemporaryDirectory(prefix="so-", dir="/tmp") as folder,
        services.Stores(folder) as stores,
    ):
        report = pathlib.Path(folder) / "report.xml"
        temporary = pathlib.Path(folder) / "t"
        temporary.mkdir()
        env = {**os.environ, "TMPDIR": str(temporary)}
        plugin = []
        if cache == "saltern":
            at = stores.at("saltern")
            master = {"master_job_cache": "saltern", "returner_dirs": [at.returners]}
            master["saltern"] = {"address": f"unix:{at.socket}", "spool_dir": f"{folder}/spool"}
            env["SALTERN_MASTER"] = json.dumps(master)
            env["PYTHONPATH"] = str(services.ROOT / "e2e" / "testdata" / "saltsuite")
            plugin = ["-p", "saltern_masters"]
        pytest = [
            python,
            "-m",
            "pytest",
            *plugin,
            "-p",
            "no:cacheprovider",
            "-c",
            os.devnull,
            "--rootdir=.",
        ]
        options = ["--run-slow", "--core-tests", "-q", f"--junitxml={report}"]
        log = pathlib.Path(folder) / "log"
        with log.open("wb") as out:
            subprocess.run(
                [*pytest, *options, *files],
                cwd=source,
                env=env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        if not report.exists():
            raise SystemExit(f"Salt's own tests did not run\n{log.read_text(errors='replace')[-3000:]}")
        return _counts(report)


def _counts(report):
    counts = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        # tests.pytests.integration.runners.test_jobs: a class may follow the file's name.
        parts = case.get("classname").split(".")[2:]
        name = "/".join(parts[: 1 + next(i for i, part in enumerate(parts) if part.startswith("test_"))]) + ".py"
        kinds = {child.tag for child in case}
        which = 1 if kinds & {"failure", "error"} else 2 if "skipped" in kinds else 0
        counts.setdefault(name, [0, 0, 0])[which] += 1
    return counts


def _section(counts):
    out = "\n## Salt's own tests\n\nUnmodified, from Salt's source distribution, on real masters and minions:\n"
    out += "passed / failed / skipped.\n\n"
    heads = [f"{version} {cache}" for version, cache in counts]
    out += "| tests/pytests/ | " + " | ".join(heads) + " |\n|---|" + "---|" * len(heads) + "\n"
    for name in FAIR:
        cells = ["/".join(map(str, of[name])) if name in of else "–" for of in counts.values()]
        out += f"| {name} | " + " | ".join(cells) + " |\n"
    sums = ["/".join(str(sum(row[i] for row in of.values())) for i in range(3)) for of in counts.values()]
    return out + "| **all** | " + " | ".join(f"**{s}**" for s in sums) + " |\n"
