"""
Usage: moving.py write|compare KIND OPTIONS

Writes jobs with one of Salt's own returners, as Salt itself calls it, or compares what that one answers with what
Saltern answers. OPTIONS is JSON: "opts" for both, and "address" of Saltern. The exit code is 1 where they differ.
"""

import datetime
import json
import sys
import time

import salt.config
import salt.loader

JOBS = 120


def loaded(kind, given):
    opts = salt.config.master_config(None)
    opts.update(given["opts"])
    opts.update(id="m1_master", root_dir=given["dir"], job_cache_store_endtime=True)
    opts["saltern"] = {"address": given["address"], "spool_dir": given["dir"] + "/spool"}
    functions = salt.loader.minion_mods(opts) if kind == "cassandra_cql" else {}
    returners = salt.loader.returners(opts, functions)
    names = [name.partition(".")[2] for name in returners if name.startswith(kind + ".")]
    assert names, f"Salt has no returner {kind}"
    return {name: returners[f"{kind}.{name}"] for name in names}


def jid_of(number):
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now - datetime.timedelta(minutes=number)).strftime("%Y%m%d%H%M%S%f")


def load_of(jid, number):
    load = {
        "cmd": "publish",
        "tgt": "web*",
        "tgt_type": "glob",
        "jid": jid,
        "user": "sudo_alice",
        "ret": "",
        "fun": "state.apply",
        "arg": ["it's ''fine''", {"__kwarg__": True, "test": True}],
        "kwargs": {"delimiter": ":", "metadata": {"ticket": number, "name": "Zoë \u2603 \U0001f600"}},
    }
    if number % 10 == 1:
        load |= {"tgt": ["alpha", "beta"], "tgt_type": "list", "fun": ["test.ping", "cmd.run"], "arg": [[], ["ls"]]}
    return load


def result_of(number, minion, kind):
    results = [
        True,
        None,
        "it's 'here' and ''there''",
        3.0,
        -7,
        2**63,
        2**70,
        [],
        {},
        "",
        float("inf"),
        {"a": {"b": [1, 2.5, None, "\x00\x1b[0m"]}, "10": "ten"},
        {"file_|-motd_|-/etc/motd_|-managed": {"__run_num__": 0, "result": False, "comment": "'", "changes": {}}},
        "x" * 70_000,
    ]
    if kind == "local_cache":
        results += [b"\x00\xff\x8b", {1: "one", None: 2}, datetime.datetime(2026, 12, 5, 1, 2, 3, 4)]
    return results[(number + len(minion)) % len(results)]


def return_of(jid, minion, number, kind):
    ret = {
        "cmd": "_return",
        "id": minion,
        "jid": jid,
        "fun": "state.apply",
        "fun_args": ["it's"],
        "success": True,
        "return": result_of(number, minion, kind),
        "retcode": 0,
        "_stamp": "2026-12-05T10:11:12.131415",
        "out": "nested",
    }
    if number % 7 == 0:
        ret |= {"retcode": 2, "success": False}
    if number % 11 == 0:
        del ret["out"]
    return ret


def write(kind, old):
    for number in range(JOBS):
        jid = jid_of(number)
        old["prep_jid"](nocache=number == 5 and kind == "local_cache", passed_jid=jid)
        old["save_load"](jid, load_of(jid, number), ["alpha", "beta"])
        if number % 13 == 2:
            old["save_minions"](jid, ["gamma", "delta"], syndic_id="syndic1")
        for minion in ("alpha", "beta", "web.example.com")[: number % 4]:
            ret = return_of(jid, minion, number, kind)
            if kind != "local_cache":  # Salt skips this for local_cache alone: it replaces the load
                old["save_load"](jid, ret) if number % 3 == 0 else None
            old["returner"](ret)
        if "update_endtime" in old and number % 2:
            old["update_endtime"](jid, "2026, Dec 05 10:11:12.131415")
    if kind == "cassandra_cql":
        settle(old)


def settle(old):
    """Wait until what the driver writes in the background is there."""
    deadline, before = time.monotonic() + 60, None
    while time.monotonic() < deadline:
        now = {jid: len(old["get_jid"](jid)) for jid in old["get_jids"]()}
        if len(now) == JOBS and now == before:
            return
        before = now
        time.sleep(0.5)
    raise AssertionError(f"{len(before)} jobs of {JOBS} after a minute")


def undoubled(value):
    """cassandra_cql gives each apostrophe back twice, which is its fault."""
    if isinstance(value, str):
        return value.replace("''", "'")
    if isinstance(value, list):
        return [undoubled(one) for one in value]
    if isinstance(value, dict):
        return {undoubled(key): undoubled(one) for key, one in value.items()}
    return value


def textual(value):
    """JSON has integers of any size; MessagePack, and so Saltern as local_cache, has larger ones as text."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 2**64:
        return str(value)
    if isinstance(value, list):
        return [textual(one) for one in value]
    if isinstance(value, dict):
        return {key: textual(one) for key, one in value.items()}
    return value


def compare(kind, old, new):
    faults = 0

    def same(what, want, got):
        nonlocal faults
        want = textual(undoubled(want) if kind == "cassandra_cql" else want)
        if want != got or repr(sorted_keys(want)) != repr(sorted_keys(got)):
            faults += 1
            print(f"{what}\n  {kind}: {want!r:.500}\n  other: {got!r:.500}")

    jids = old["get_jids"]()
    assert len(jids) == JOBS, f"{kind} has {len(jids)} jobs of {JOBS}"
    same("get_jids", described(jids), described(new["get_jids"]()))
    for jid in jids:
        same(f"get_load {jid}", old["get_load"](jid), new["get_load"](jid))
        same(f"get_jid {jid}", old["get_jid"](jid), new["get_jid"](jid))
        if "get_endtime" in old:
            same(f"get_endtime {jid}", old["get_endtime"](jid), new["get_endtime"](jid))
    if "get_jids_filter" in old:
        rows = [described({0: row})[0] for row in old["get_jids_filter"](50)]
        same("get_jids_filter", rows, [described({0: row})[0] for row in new["get_jids_filter"](50)])
    print(f"{len(jids)} jobs compared, {faults} differences")
    return 1 if faults else 0


def described(rows):
    """Saltern's returner gives several functions as one text, which Salt's outputters need; others as a list."""
    for row in rows.values():
        if isinstance(row["Function"], list):
            row["Function"] = ",".join(row["Function"])
    return rows


def sorted_keys(value):
    """Dictionaries in one order, so that repr tells 1 from True and 3 from 3.0."""
    if isinstance(value, dict):
        return sorted((repr(key), sorted_keys(one)) for key, one in value.items())
    if isinstance(value, list):
        return [sorted_keys(one) for one in value]
    return value


def main():
    do, kind, given = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    old = loaded(kind, given)
    if do == "write":
        write(kind, old)
        return 0
    # Another folder of the same kind, or Saltern.
    new = loaded(kind, {**given, "opts": given["other"]}) if "other" in given else loaded("saltern", given)
    return compare(kind, old, new)


sys.exit(main())
