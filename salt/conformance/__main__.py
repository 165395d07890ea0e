"""
Puts every returner through the checks and writes docs/compatibility.md: ``make conformance``.

It starts the stores that they need, and one Python a returner, with the Salt that has it.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from . import own
from . import page
from . import services
from . import subjects


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m conformance")
    parser.add_argument("names", nargs="*", help="returners; default all")
    parser.add_argument("--page", type=pathlib.Path, help="where the page goes; default: none is written")
    parser.add_argument("--own", action="store_true", help="run Salt's own tests too, which takes half an hour")
    parser.add_argument("--when", default="", help="what the page says of its making")
    args = parser.parse_args()
    kinds = [k for k in subjects.KINDS if not args.names or k.name in args.names]
    if not kinds:
        parser.error("the returners are " + ", ".join(k.name for k in subjects.KINDS))
    with tempfile.TemporaryDirectory(prefix="sc-") as folder, services.Stores(folder) as stores:
        results = {kind.name: put_through(kind, stores, folder) for kind in kinds}
    suites = own.run(environment) if args.own else ""
    if args.page:
        when = f" on {args.when}" if args.when else ""
        args.page.write_text(page.render(kinds, results, when, suites))
    print(page.render(kinds, results, "", suites) if not args.page else f"written: {args.page}")
    wrong = [row for name, rows in results.items() if name.startswith("saltern") for row in rows if row[2] != "right"]
    return 1 if wrong else 0


def put_through(kind, stores, folder):
    """The results of one returner."""
    results = pathlib.Path(folder) / f"{kind.name}.json"
    at, away = stores.at(kind.store), stores.away(kind.store)
    task = {
        "name": kind.name.partition(" ")[0],
        "folder": f"{folder}/salt-{kind.env}-{kind.name}".replace(" ", "-"),
        "opts": kind.opts(at),
        "down": kind.opts(away) if away else None,
        "results": str(results),
    }
    print(f"checking {kind.name}", flush=True)
    log = results.with_suffix(".log")
    with log.open("wb") as out:
        python = environment(kind.env)
        command = [python, "-m", "conformance.worker"]
        done = subprocess.run(
            command,
            input=json.dumps(task).encode(),
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=services.ROOT / "salt",
        )
    if done.returncode or not results.exists():
        sys.exit(f"{kind.name}: the checks did not run to their end\n{log.read_text(errors='replace')[-3000:]}")
    return json.loads(results.read_text())


def environment(name):
    build = services.ROOT / "testbed" / "pyenv" / "build"
    made = subprocess.run([build, name], check=True, stdout=subprocess.PIPE, text=True)
    return made.stdout.split()[-1] + "/bin/python"


if __name__ == "__main__":
    sys.exit(main())
