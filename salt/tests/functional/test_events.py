"""
event_return: every event is stored, once, in order, whatever is in it.
"""

import socket
import time

import pytest

from tests.annex import P4_DER
from tests.annex import new_jid
from tests.annex import p2
from tests.conftest import Daemon
from tests.conftest import Loaded
from tests.conftest import options
from tests.conftest import told
from tests.conftest import wait_for


@pytest.fixture
def daemon(short_dir):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        http = f"127.0.0.1:{free.getsockname()[1]}"
    daemon = Daemon(short_dir, http=http).start()
    yield daemon
    daemon.stop()


@pytest.fixture
def master(daemon):
    return Loaded(options(daemon.folder, daemon.address))


def test_s06_bytes_and_an_object_in_a_batch_of_ten(daemon, master, caplog):
    class Odd:
        def __repr__(self):
            return "<odd>"

    events = [{"tag": f"t/{n}", "data": {"n": n}} for n in range(10)]
    events[3]["data"] = {"return": P4_DER}
    events[6]["data"] = {"odd": Odd(), "rest": 1}
    before = list(events)
    master.event_return(events)
    assert events == before
    stored = daemon.events()
    assert [event["tag"] for event in stored] == [f"t/{n}" for n in range(10)]
    assert {event["master"] for event in stored} == {"m1_master"}
    assert stored[6]["data"] == {"odd": "<odd>", "rest": 1}
    assert len(told(caplog)) == 1


def test_s06_events_while_saltern_is_away_are_stored_once(daemon, master):
    daemon.kill()
    begun = time.monotonic()
    for batch in range(3):
        master.event_return([{"tag": f"t/{batch}/{n}", "data": {}} for n in range(10)])
    assert time.monotonic() - begun < 3
    daemon.start()
    master.event_return([{"tag": "after", "data": {}}])
    wait_for(lambda: len(daemon.events()) >= 31)
    tags = [event["tag"] for event in daemon.events()]
    assert tags == [f"t/{b}/{n}" for b in range(3) for n in range(10)] + ["after"]


def test_s06_a_spool_that_is_sent_twice_stores_nothing_twice(daemon, master, short_dir):
    import os
    import shutil

    daemon.kill()
    master.event_return([{"tag": f"t/{n}", "data": {}} for n in range(10)])
    spool = f"{short_dir}/spool/master"
    shutil.copytree(spool, f"{short_dir}/copy")
    daemon.start()
    master.clean_old_jobs()
    assert not os.path.exists(f"{spool}/away")
    # As after a crash between sending and noting it.
    shutil.rmtree(spool)
    shutil.copytree(f"{short_dir}/copy", spool)
    master.clean_old_jobs()
    assert not os.path.exists(f"{spool}/away")
    assert len(daemon.events()) == 10


ODD = [
    {"tag": "nested", "data": {"return": {"data": P4_DER}}},
    {"tag": "key", "data": {b"\x82": "v"}},
    {"tag": b"bytes/tag", "data": {"n": 1}},
    {"tag": "empty", "data": {}},
    {"tag": "none", "data": None},
    {"data": {"n": 2}},
    {"tag": "text", "data": "a plain text"},
    {},
    "no event",
    None,
    {"tag": "apostrophe/it's", "data": {"s": "caf\udce9"}},
    {"tag": "caf\udce9", "data": {}},
    {"tag": 7, "data": {}},
]


def test_s36_odd_events_do_not_stop_the_good_ones(daemon, master, caplog):
    for odd in ODD:
        master.event_return([odd, {"tag": "good", "data": {"after": repr(odd)[:20]}}])
    stored = daemon.events()
    assert len(stored) == 2 * len(ODD)
    assert [event["tag"] for event in stored[1::2]] == ["good"] * len(ODD)
    tags = [event["tag"] for event in stored[::2]]
    assert tags[:7] == ["nested", "key", "bytes/tag", "empty", "none", "", "text"]
    assert stored[12]["data"] == "a plain text"
    assert not told(caplog)


def test_s84_p15_the_stream_of_a_job_is_kept_as_sent(daemon, master):
    jid = new_jid()
    full = p2(jid, "10.0.0.9")
    events = [
        {"tag": jid, "data": {"minions": ["10.0.0.9"]}},
        {"tag": "new_job", "data": {"jid": jid}},
        {"tag": f"salt/job/{jid}/new", "data": {"jid": jid}},
        {"tag": "salt/auth", "data": {"pub": "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END\n"}},
        {"tag": jid, "data": full},
        {"tag": f"salt/job/{jid}/ret/10.0.0.9", "data": full},
    ]
    master.event_return(events)
    stored = daemon.events()
    assert [{"tag": e["tag"], "data": e["data"]} for e in stored] == events


def test_s84_ten_thousand_events_and_none(daemon, master):
    master.event_return([])
    begun = time.monotonic()
    master.event_return([{"tag": "t", "data": {"n": n}} for n in range(10_000)])
    assert time.monotonic() - begun < 5
    assert [event["data"]["n"] for event in daemon.events()] == list(range(10_000))


def test_large_events_go_in_parts(daemon, master):
    master.event_return([{"tag": f"t/{n}", "data": "x" * (1 << 20)} for n in range(70)])
    tags = [event["tag"] for event in daemon.events("order=oldest&limit=50")]
    assert tags == [f"t/{n}" for n in range(70)]
