"""
Saltern is killed, stopped, started again: nothing is lost, nothing waits for long.
"""

import concurrent.futures
import contextlib
import glob
import logging
import multiprocessing
import os
import time

import pytest
import salt.exceptions

from tests.annex import P4_DER
from tests.annex import new_jid
from tests.annex import p1
from tests.annex import p2
from tests.annex import store_return
from tests.conftest import Loaded
from tests.conftest import forget
from tests.conftest import options
from tests.conftest import told
from tests.conftest import wait_for


def segments(daemon, role="master"):
    return glob.glob(f"{daemon.folder}/spool/{role}/*.seg")


def drain(returner, daemon, role="master"):
    def done():
        returner.clean_old_jobs()
        return not os.path.exists(f"{daemon.folder}/spool/{role}/away")

    wait_for(done, 40)
    assert not segments(daemon, role)


def test_s03_s06_written_while_killed_is_there_once_afterwards(daemon, master, caplog):
    first = master.prep_jid()
    master.save_load(first, p1(first), ["alpha"])
    daemon.kill()
    jids = [master.prep_jid() for _ in range(40)]
    assert len(set(jids)) == 40
    for jid in jids:
        master.save_load(jid, p1(jid), ["alpha", "beta"])
        store_return(master, p2(jid))
        assert store_return(master, p2(jid, "beta")) is None
        master.update_endtime(jid, "later")
    master.event_return([{"tag": "a", "data": {"n": 1}}])
    master.save_minions(first, ["gamma"])
    assert len(told(caplog)) == 1
    daemon.start()
    drain(master, daemon)
    for jid in jids:
        assert master.get_load(jid) == {**p1(jid), "Minions": ["alpha", "beta"]}
        assert {m: r["return"] for m, r in master.get_jid(jid).items()} == dict(
            alpha=True, beta=True
        )
        assert master.get_endtime(jid) == "later"
    assert set(master.get_jids()) == {first, *jids}
    assert master.get_load(first)["Minions"] == ["alpha", "gamma"]
    # One line when it went, one when it came back.
    assert len(told(caplog)) == 2


def test_reads_while_away_are_one_line_with_address_and_cause(daemon, master, minion):
    daemon.kill()
    for read in (
        lambda: master.get_load("1"),
        lambda: master.get_jid("1"),
        lambda: master.get_jids(),
        lambda: master.get_jids_filter(5),
        lambda: master.get_fun("test.ping"),
        lambda: master.get_minions(),
        lambda: minion.get_jids(),
    ):
        with pytest.raises(salt.exceptions.NotImplemented) as raised:
            read()
        text = str(raised.value)
        assert daemon.address in text
        assert "is `saltern serve` running?" in text
        assert "\n" not in text


def test_unknown_is_not_said_while_something_waits(daemon, master):
    jid = new_jid()
    daemon.kill()
    master.save_load(jid, p1(jid), ["alpha"])
    daemon.start()
    # The first call that finds Saltern up sends what waits, and then asks.
    assert master.get_load(jid)["tgt"] == "*"


def test_s67_the_runner_raises_what_salt_prints_as_a_line(daemon, jobs):
    daemon.kill()
    for function, args in [("list_job", ["1"]), ("lookup_jid", ["1"]), ("list_jobs", [])]:
        with pytest.raises(salt.exceptions.NotImplemented, match="cannot be reached"):
            jobs(function, *args)


def test_a_restart_between_two_calls_is_not_seen(daemon, master, caplog):
    jid = new_jid()
    master.save_load(jid, p1(jid), ["alpha"])
    daemon.kill()
    daemon.start()
    store_return(master, p2(jid))
    assert master.get_jid(jid)["alpha"]["return"] is True
    assert not told(caplog)


def return_many(opts, jid, first, count, took):
    returner = Loaded(opts)
    times = []
    for number in range(first, first + count):
        begun = time.monotonic()
        store_return(returner, p2(jid, f"minion{number}", number))
        times.append(time.monotonic() - begun)
    took.put(times)


def test_s27_hung_saltern_300_returns_through_5_workers(daemon, master):
    jid = new_jid()
    master.save_load(jid, p1(jid), [f"minion{number}" for number in range(300)])
    context = multiprocessing.get_context("fork")
    took = context.Queue()
    daemon.hang()
    begun = time.monotonic()
    workers = [
        context.Process(target=return_many, args=(master.opts, jid, 60 * n, 60, took))
        for n in range(5)
    ]
    for worker in workers:
        worker.start()
    times = [took.get(timeout=60) for _ in workers]
    total = time.monotonic() - begun
    for worker in workers:
        worker.join()
    # One time-out for each worker, and then some probes; never more than one for a call.
    assert max(max(each) for each in times) < 4
    assert sum(sorted(t for each in times for t in each)[:-15]) < 10
    assert total < 20
    daemon.go_on()
    forget()  # a new process
    drain(Loaded(master.opts), daemon)
    got = Loaded(master.opts).get_jid(jid)
    assert {m: r["return"] for m, r in got.items()} == {f"minion{n}": n for n in range(300)}


def test_a_hung_saltern_costs_one_time_out_and_is_told_of_once(daemon, master, caplog):
    master.prep_jid()
    daemon.hang()
    begun = time.monotonic()
    jid = master.prep_jid()
    first = time.monotonic() - begun
    for number in range(20):
        store_return(master, p2(jid, f"minion{number}"))
    with pytest.raises(salt.exceptions.NotImplemented, match="no answer within 1 s"):
        master.get_load(jid)
    assert 0.9 < first < 3
    assert time.monotonic() - begun < first + 1
    (warning,) = told(caplog)
    assert "away: no answer within 1 s" in warning
    daemon.go_on()
    drain(master, daemon)
    assert len(master.get_jid(jid)) == 20
    assert len(told(caplog)) == 2


def test_a_minion_spools_too(daemon, minion, caplog):
    daemon.kill()
    jid = new_jid()
    mine = {"id": "alpha", "jid": jid, "fun": "test.ping", "fun_args": ["x"], "return": True}
    assert minion.returner(dict(mine)) is None
    assert segments(daemon, "minion")
    assert oct(os.stat(f"{daemon.folder}/spool/minion").st_mode & 0o777) == "0o700"
    for name in os.listdir(f"{daemon.folder}/spool/minion"):
        mode = os.stat(f"{daemon.folder}/spool/minion/{name}").st_mode
        assert mode & 0o777 == 0o600, name
    daemon.start()
    drain(minion, daemon, "minion")
    assert minion.get_jid(jid)["alpha"] == mine
    assert minion.get_load(jid)["arg"] == ["x"]


def test_s06_events_of_one_call_with_odd_ones(daemon, master, caplog):
    class Odd:
        def __repr__(self):
            return "<odd>"

    events = [{"tag": f"t/{n}", "data": {"n": n}} for n in range(10)]
    events[3]["data"] = {"return": P4_DER, b"\x82": 1}
    events[6]["data"] = {"odd": Odd()}
    kept = list(events)
    master.event_return(events)
    assert events == kept
    assert len(told(caplog)) == 1
    for odd in ([], None, [{}], [{"tag": b"\xff", "data": None}], [{"data": "text"}], ["text"]):
        master.event_return(odd)
    assert not told(caplog, logging.ERROR)


def test_s35_large_returns_and_the_stub_above_the_limit(daemon, master, caplog):
    mib = 1 << 20
    jid = new_jid()
    sizes = [63 << 10, 64 << 10, 65 << 10, mib, 16 * mib]
    for number, size in enumerate(sizes):
        store_return(master, p2(jid, f"m{number}", "x" * size))
    got = master.get_jid(jid)
    assert [len(got[f"m{number}"]["return"]) for number in range(len(sizes))] == sizes
    assert not told(caplog)
    jid = new_jid()
    store_return(master, p2(jid, result="head" + "y" * (72 * mib), retcode=3, success=False))
    got = master.get_jid(jid)["alpha"]
    assert (got["retcode"], got["success"]) == (3, False)
    stub = got["return"]
    assert (stub["retcode"], stub["success"]) == (3, False)
    assert stub["size"] > 72 * mib
    assert stub["limit"] == 64 * mib
    assert stub["head"].startswith("heady")
    assert len(told(caplog)) == 1
    assert not told(caplog, logging.ERROR)


def test_s88_errors_and_logs_have_no_payload(daemon, master, caplog):
    jid = new_jid()
    secrets = {"pw": "s3cr3t-2"}
    master.save_load(jid, p1(jid, arg=["s3cr3t-1"], kwargs={"pillar": secrets}), ["alpha"])
    store_return(master, p2(jid, result="s3cr3t-3"))
    store_return(master, p2(jid, result="s3cr3t-4"))
    daemon.kill()
    store_return(master, p2(jid, "beta", "s3cr3t-5"))
    with pytest.raises(salt.exceptions.NotImplemented) as raised:
        master.get_jid(jid)
    assert "s3cr3t" not in str(raised.value)
    assert not [text for text in caplog.messages if "s3cr3t" in text]
    with open(f"{daemon.folder}/saltern.log", encoding="utf-8") as log:
        assert "s3cr3t" not in log.read()


def socket_count():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
    return len([link for link in links if link.startswith("socket:")])


def test_s56_forks_and_sockets(daemon, master):
    master.prep_jid()
    context = multiprocessing.get_context("fork")
    found = context.Queue()

    def child(number):
        wrong = 0
        for count in range(200):
            jid = f"{number}-{count}"
            master.save_load(jid, {"fun": jid, "pid": os.getpid()}, ["alpha"])
            wrong += master.get_load(jid)["fun"] != jid
        found.put((wrong, socket_count()))

    before = socket_count()
    children = [context.Process(target=child, args=(number,)) for number in range(8)]
    for one in children:
        one.start()
    for number in range(200):
        jid = f"parent-{number}"
        master.save_load(jid, {"fun": jid}, ["alpha"])
        assert master.get_load(jid)["fun"] == jid
    results = [found.get(timeout=60) for _ in children]
    for one in children:
        one.join()
    assert [wrong for wrong, _ in results] == [0] * 8
    assert max(sockets for _, sockets in results) <= before + 1
    assert socket_count() == before


def test_s56_threads_have_connections_of_their_own(master):
    def work(number):
        jid = f"thread-{number}"
        master.save_load(jid, {"fun": jid}, ["alpha"])
        return master.get_load(jid)["fun"] == jid

    before = socket_count()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert all(pool.map(work, range(500)))
    wait_for(lambda: socket_count() <= before + 1)


def test_s85_profiles_and_kwargs_are_honoured_for_each_call(daemon, short_dir):
    opts = options(daemon.folder, "unix:/nowhere/saltern.sock", role="minion")
    opts["alternative.saltern.address"] = daemon.address
    opts["other"] = {"saltern": {"address": daemon.address}}
    minion = Loaded(opts)
    read = Loaded(options(daemon.folder, daemon.address))
    for more, kept in [
        ({"ret_config": "alternative"}, True),
        ({"ret_config": "other"}, True),
        ({"ret_kwargs": {"address": daemon.address}}, True),
        ({}, False),
        ({"ret_config": "none.such"}, False),
    ]:
        jid = new_jid()
        mine = {"id": "alpha", "jid": jid, "fun": "test.ping", "return": True, **more}
        minion.returner(mine)
        assert bool(read.get_jid(jid)) is kept, more
        if kept:
            assert read.get_load(jid)["tgt"] == "alpha"


def test_a_master_does_not_follow_ret_kwargs_of_a_minion(master):
    jid = new_jid()
    elsewhere = {"address": "unix:/nowhere/saltern.sock"}
    store_return(master, p2(jid, ret_kwargs=elsewhere, ret_config="alternative"))
    assert master.get_jid(jid)["alpha"]["return"] is True
