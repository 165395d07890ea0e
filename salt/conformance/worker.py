"""
Puts one returner through the checks, in a Python that has its Salt: run by __main__.py.

Reads {"name", "folder", "opts", "down", "results"} as JSON from standard input and writes the results to the file named
in "results"; what Salt prints goes to where it likes.
"""

import json
import pathlib
import sys

import salt.config

from . import jobs  # noqa: F401 adds its checks
from . import lists  # noqa: F401
from . import prepare
from . import returns  # noqa: F401
from .harness import run


def master(folder, more):
    """The options of a master whose everything is in a folder."""
    opts = salt.config.master_config(None)
    opts.update({"root_dir": folder, "id": "m1_master", "job_cache_store_endtime": True, "cache": "localfs"})
    for key in ("cachedir", "pki_dir", "extension_modules", "sock_dir"):
        opts[key] = f"{folder}/{key}"
        pathlib.Path(opts[key]).mkdir(parents=True, exist_ok=True)
    opts.update(more)
    return opts


def main():
    task = json.load(sys.stdin)
    opts = master(task["folder"], task["opts"])
    prepare.tables(task["name"], opts)
    down = task["down"] and master(task["folder"] + "-down", task["down"])
    results = run(task["name"], opts, down)
    pathlib.Path(task["results"]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
