"""
The cases about loads, returns, lists and what Salt's runner makes of them.
"""

import logging
import multiprocessing
import random

import pytest
import salt.utils.jid

from tests.annex import P6
from tests.annex import P7
from tests.annex import P8
from tests.annex import new_jid
from tests.annex import p1
from tests.annex import p2
from tests.annex import p10
from tests.annex import p11
from tests.annex import p16
from tests.annex import p17
from tests.annex import store_return
from tests.conftest import Daemon
from tests.conftest import Loaded
from tests.conftest import options
from tests.conftest import told


def test_s01_a_return_does_not_replace_the_load(master, jobs):
    jid = new_jid()
    load = p1(jid, tgt="web*", arg=["x"])
    master.save_load(jid, load, ["alpha", "beta"])
    store_return(master, p2(jid))
    assert master.get_load(jid) == {**load, "Minions": ["alpha", "beta"]}
    row = jobs("list_jobs")[jid]
    assert (row["Target"], row["Target-type"], row["User"]) == ("web*", "glob", "sudo_alice")
    assert row["Arguments"] == ["x"]


def test_s04_s17_a_read_after_a_write_sees_it(master):
    for number in range(100):
        jid = new_jid()
        assert master.get_load(jid) == {}  # a negative entry must not hide what comes
        master.save_load(jid, p1(jid, arg=["first"]), ["alpha"])
        master.save_load(jid, p1(jid, arg=[number]), ["alpha"])
        assert master.get_load(jid)["arg"] == [number]
        assert master.returner(p2(jid, result=number)) is None
        assert master.returner(p2(jid, result=number)) is False
        assert master.get_jid(jid)["alpha"]["return"] == number


def read_load(opts, jids, found):
    returner = Loaded(opts)
    found.put([jid for jid in jids if returner.get_load(jid)])


def test_s10_s17_another_process_sees_it_at_once(master):
    context = multiprocessing.get_context("fork")
    jids = [new_jid() for _ in range(200)]
    for jid in jids:
        master.save_load(jid, p1(jid), ["alpha"])
    found = context.Queue()
    reader = context.Process(target=read_load, args=(master.opts, jids, found))
    reader.start()
    assert found.get(timeout=30) == jids
    reader.join()


def test_s10_acknowledged_returns_survive_kill_9(daemon, master):
    kept = []
    for _ in range(3):
        for _ in range(20):
            jid = new_jid()
            store_return(master, p2(jid, result=jid))
            kept.append(jid)
        daemon.kill()
        daemon.start()
    assert [master.get_jid(jid)["alpha"]["return"] for jid in kept] == kept


def test_s07_save_load_again_and_again(master, caplog):
    jid = "20180426141333546550"
    master.save_load(jid, p1(jid), ["alpha"])
    master.save_load(int(jid), p2(jid))
    master.save_load(jid, p2(jid))
    master.save_load("1", p1("1"), ["alpha"])
    master.save_load(1, p2("1"))
    assert master.get_load(int(jid))["tgt"] == "*"
    assert master.get_load("1") == master.get_load(1) == {**p1("1"), "Minions": ["alpha"]}
    assert not told(caplog)


@pytest.mark.parametrize("kind", [list, tuple, set, lambda ids: dict.fromkeys(ids).keys()])
def test_s08_expected_minions(master, jobs, kind):
    jid = new_jid()
    master.save_load(jid, p1(jid), minions=kind(["beta", "alpha"]))
    store_return(master, p2(jid))
    assert jobs("list_job", jid)["Minions"] == ["alpha", "beta"]
    found = jobs("lookup_jid", jid, missing=True)
    assert found == {"alpha": True, "beta": "Minion did not return"}
    assert jobs("exit_success", jid) == {"alpha": True, "beta": False}


def test_s08_p18_batches_add_their_minions(master):
    jid = new_jid()
    for minions in (["alpha", "beta"], ["gamma"], ["delta"]):
        master.save_load(jid, p1(jid, tgt=minions, tgt_type="list"), minions)
    assert master.get_load(jid)["Minions"] == ["alpha", "beta", "delta", "gamma"]
    assert master.get_load(jid)["tgt"] == ["delta"]


def test_s14_new_jobs_survive_clean_old_jobs(master):
    jids = []
    for _ in range(100):
        jid = new_jid()
        master.save_load(jid, p1(jid), ["alpha"])
        assert master.clean_old_jobs() is None
        store_return(master, p2(jid))
        jids.append(jid)
    master.clean_old_jobs()
    assert all(master.get_load(jid)["tgt"] == "*" for jid in jids)
    assert all(master.get_jid(jid)["alpha"]["return"] is True for jid in jids)


@pytest.mark.parametrize("seed", range(20))
def test_s18_two_masters_store_one_job(daemon, seed):
    one = Loaded(options(daemon.folder, daemon.address))
    two = Loaded(options(daemon.folder, daemon.address, id="m2_master"))
    jid = new_jid()
    steps = [
        lambda: one.save_load(jid, p1(jid), ["alpha"]),
        lambda: two.save_load(jid, p1(jid), ["beta"]),
        lambda: store_return(one, p2(jid)),
        lambda: store_return(two, p2(jid)),
    ]
    random.Random(seed).shuffle(steps)
    for step in steps:
        step()
    assert one.get_load(jid) == {**p1(jid), "Minions": ["alpha", "beta"]}
    assert list(two.get_jid(jid)) == ["alpha"]


def test_s20_syndics(master):
    jid = new_jid()
    master.save_load(jid, p1(jid, to=30), ["s1", "s2"])
    master.save_minions(jid, ["a", "b"], syndic_id="s1")
    master.save_minions(jid, {"c": 1}.keys(), syndic_id="s2")
    master.save_load(jid, p1(jid, user="syndic", Minions=["a", "b"]))
    load = master.get_load(jid)
    assert load["Minions"] == ["a", "b", "c", "s1", "s2"]
    assert (load["user"], load["to"]) == ("sudo_alice", 30)
    other = new_jid()
    master.save_minions(other, ["x"], syndic_id="s1")
    master.returner(p2(other, "x"))
    assert master.get_load(other) == {"Minions": ["x"]}
    assert master.get_jid(other)["x"]["return"] is True


def test_s24_a_repeat_is_stored_once(master, caplog):
    jid = new_jid()
    assert store_return(master, p2(jid)) is None
    assert store_return(master, p2(jid, _stamp="later", ts=1)) is False
    # The same return from the minion itself, with --return.
    mine = {"id": "alpha", "jid": jid, "return": True, "retcode": 0, "success": True}
    assert master.returner({**mine, "fun": "test.ping", "fun_args": []}) is False
    assert not told(caplog)
    assert store_return(master, p2(jid, result=False)) is False
    (warning,) = told(caplog)
    assert "replay" not in warning
    assert master.get_jid(jid)["alpha"]["return"] is True


def mint(opts, count, found):
    returner = Loaded(opts)
    found.put([returner.prep_jid() for _ in range(count)])


def test_s25_jids_are_unique_and_salts(master):
    context = multiprocessing.get_context("fork")
    found = context.Queue()
    minters = [context.Process(target=mint, args=(master.opts, 250, found)) for _ in range(8)]
    for minter in minters:
        minter.start()
    jids = [jid for _ in minters for jid in found.get(timeout=60)]
    for minter in minters:
        minter.join()
    jids += [master.prep_jid(passed_jid=""), master.prep_jid(False, None)]
    assert len(set(jids)) == 2002
    assert all(salt.utils.jid.is_jid(jid) for jid in jids)
    assert master.prep_jid(False, passed_jid="mine") == "mine"
    assert master.prep_jid(passed_jid=20240801142738891639) == "20240801142738891639"


def test_s38_p16_p17_retcode_and_success_as_sent(master):
    for ret in (p16(new_jid()), p17(new_jid())):
        store_return(master, dict(ret))
        got = master.get_jid(ret["jid"])["alpha"]
        assert got == ret
    jid = new_jid()
    master.returner({"jid": jid, "id": "alpha", "return": {"stdout": "x"}, "fun": "test.ping"})
    got = master.get_jid(jid)["alpha"]
    assert got["return"] == {"stdout": "x"}
    assert "retcode" not in got
    assert "success" not in got
    for retcode in (0, 2, None, 2**70, "2", {"a": 1}):
        jid = new_jid()
        store_return(master, p2(jid, retcode=retcode, out="highstate"))
        got = master.get_jid(jid)["alpha"]
        assert got["retcode"] == (str(2**70) if retcode == 2**70 else retcode)
        assert got["out"] == "highstate"


@pytest.mark.parametrize(
    ("arg", "shown"), [(P6, P6), (P7, P7), (P8, P8), ('["motd"]', ['["motd"]']), (None, [])]
)
def test_s40_arguments(master, jobs, arg, shown):
    jid = new_jid()
    load = p1(jid, arg=arg, fun_args=["other"])
    del load["user"]
    master.save_load(jid, load, ["alpha"])
    assert master.get_load(jid)["arg"] == arg
    row = jobs("list_jobs")[jid]
    assert row["Arguments"] == shown
    assert row["User"] == "root"


ODD_LOADS = {
    "no jid": {"fun": "test.ping", "tgt": "*", "arg": []},
    "empty": {},
    "None": None,
    "a list": ["no", "load"],
    "P12": {"tgt": ["alpha", "beta"], "tgt_type": "list", "fun": "test.ping"},
    "P13": {"tgt": None, "fun": "test.ping"},
    "P14": {"tgt": "*", "tgt_type": [], "fun": "test.ping"},
    "P14 b": {"tgt": "*", "tgt_type": ["idontknow"], "fun": "test.ping"},
    "fun missing": {"tgt": "*", "arg": []},
    "arg missing": {"tgt": "*", "fun": "test.ping"},
    "fun a list": {"tgt": "*", "fun": ["test.ping", "test.version"], "arg": [[], []]},
    "kwargs None": {"tgt": "*", "fun": "test.ping", "arg": 7, "kwargs": None},
    "tgt a number": {"tgt": 7, "fun": 7, "user": 7, "kwargs": "x"},
}


def test_s41_odd_loads_do_not_hurt_the_list(master, jobs):
    jids = {}
    for name, load in ODD_LOADS.items():
        jids[name] = new_jid()
        master.save_load(jids[name], load, ["alpha"])
    bad = "20269999999999999999"  # 20 digits that are no date
    master.save_load(bad, p1(bad), ["alpha"])
    rows = master.get_jids()
    assert set(rows) == {*jids.values(), bad}
    for row in rows.values():
        assert isinstance(row["Function"], str)
        assert isinstance(row["Arguments"], list)
        assert isinstance(row["Target-type"], str)
        assert isinstance(row["Target"], (str, list))
    assert rows[jids["fun a list"]]["Function"] == "test.ping,test.version"
    assert list(jobs("list_jobs", search_target="alpha")) == [jids["P12"]]
    assert jids["P13"] in jobs("list_jobs", search_function="test.*")


def test_s42_get_jids_is_a_dictionary(master, jobs):
    jids = [new_jid() for _ in range(3)]
    for jid in jids:
        master.save_load(jid, p1(jid, tgt="al*"), ["alpha"])
    rows = master.get_jids()
    assert set(rows) == set(jids)
    wanted = {"Function", "Arguments", "Target", "Target-type", "User", "StartTime"}
    assert set(rows[jids[0]]) == wanted
    assert rows[jids[0]]["StartTime"] == salt.utils.jid.jid_to_time(jids[0])
    found = jobs(
        "list_jobs", search_function="test.*", search_target="alpha,al*", start_time="2020"
    )
    assert set(found) == set(jids)
    assert list(jobs("last_run")) == [jids[-1]]


def test_s42_on_a_minion_it_is_a_list(master, minion):
    jids = [new_jid() for _ in range(3)]
    for jid in jids:
        master.save_load(jid, p1(jid), ["alpha"])
    assert minion.get_jids() == jids


def test_s42_s43_get_jids_filter(master, jobs):
    jids = [new_jid() for _ in range(30)]
    for number, jid in enumerate(jids):
        fun = "saltutil.find_job" if number % 3 else "test.ping"
        master.save_load(jid, p1(jid, fun=fun), ["alpha"])
    rows = master.get_jids_filter(5)
    assert [row["JID"] for row in rows] == jids[::3][-5:]
    assert [row["JID"] for row in master.get_jids_filter(4, filter_find_job=False)] == jids[-4:]
    assert master.get_jids_filter(0) == []
    assert len(master.get_jids_filter("100")) == 10
    assert [row["JID"] for row in jobs("list_jobs_filter", 2)] == jids[::3][-2:]


def test_s43_many_jobs_are_listed_page_by_page(master):
    jids = [new_jid() for _ in range(2100)]
    for jid in jids:
        master.save_load(jid, {"fun": "test.ping", "tgt": "*"}, ["alpha"])
    assert list(master.get_jids())[::-1] == jids
    assert [row["JID"] for row in master.get_jids_filter(2050)] == jids[-2050:]


def test_a_job_of_many_minions_is_read_page_by_page(master):
    jid = new_jid()
    ids = [f"minion-{number:03}" for number in range(60)]
    master.save_load(jid, p1(jid), ids)
    for ident in ids:
        store_return(master, p2(jid, ident, ident * 5000))
    got = master.get_jid(jid)
    assert {ident: ret["return"] for ident, ret in got.items()} == {i: i * 5000 for i in ids}


def test_s48_req_through_salt(master):
    rets = []
    for _ in range(2):
        ret = p2("req", result={"n": 1})
        store_return(master, ret)
        rets.append(ret["jid"])
    assert len(set(rets)) == 2
    for jid in rets:
        load = master.get_load(jid)
        assert (load["tgt"], load["tgt_type"]) == ("alpha", "glob")
        assert load["return"] == {"n": 1}
        assert master.get_jid(jid)["alpha"]["return"] == {"n": 1}
    assert "req" not in master.get_jids()


def test_s48_req_with_job_cache_false_stores_the_load_alone(master):
    jid = master.prep_jid(nocache=False)
    master.save_load(jid, p2(jid, tgt="alpha", tgt_type="glob", arg=[]))
    assert master.get_load(jid)["tgt"] == "alpha"
    assert master.get_jid(jid) == {}


def test_s48_req_from_a_minion(minion):
    one = {"jid": "req", "id": "alpha", "fun": "test.ping", "return": True}
    two = dict(one)
    minion.returner(one)
    minion.returner(two)
    assert len({one["jid"], two["jid"], "req"}) == 3
    assert minion.get_jids() == sorted([one["jid"], two["jid"]])
    assert minion.get_load(one["jid"])["tgt"] == "alpha"


def test_s48_nocache(master):
    assert store_return(master, p2("nocache")) is None
    master.returner(p2("nocache"))
    jid = master.prep_jid(nocache=True)
    master.save_load(jid, p1(jid), ["alpha"])
    store_return(master, p2(jid))
    assert master.get_jid(jid) == {}
    assert "nocache" not in master.get_jids()


ODD_JIDS = [
    "20240801142738891639_4711",
    "5b3d40a11db08fbfdce5a756552d2080e1268272",
    "my job/1",
    "../x",
    "a:b*?[c]",
    "j" * 300,
    "j\u00f6b \u65e5\u672c",
    "caf\udce9",
]


def test_s50_free_jids(master, jobs):
    for number, jid in enumerate(ODD_JIDS):
        master.save_load(jid, p1(jid, arg=[number]), ["alpha"])
        store_return(master, p2(jid, result=number))
    for number, jid in enumerate(ODD_JIDS):
        assert master.get_load(jid)["arg"] == [number]
        assert master.get_jid(jid)["alpha"]["return"] == number
    rows = master.get_jids()
    assert set(rows) == set(ODD_JIDS)
    assert rows[ODD_JIDS[0]]["StartTime"] == "2024, Aug 01 14:27:38.891639"
    assert rows["../x"]["StartTime"] == ""
    master.save_load(20240801142738891640, p1("x"), ["alpha"])
    assert master.get_load("20240801142738891640")["tgt"] == "*"


GOOD_IDS = ["foo.bar*", "test minion", "a:b", "\u65e5\u672c", "\ufeffalpha", "10.0.0.1", "m_master"]
GOOD_IDS += ["a/b", "a\x00b", "..", "..'", "i" * 255]


def test_s51_odd_minion_ids(master, caplog):
    jid = new_jid()
    master.save_load(jid, p1(jid), [*GOOD_IDS, "", "x" * 2000])
    for ident in GOOD_IDS:
        store_return(master, p2(jid, ident, ident))
    assert master.get_load(jid)["Minions"] == sorted(GOOD_IDS)
    assert {i: r["return"] for i, r in master.get_jid(jid).items()} == {i: i for i in GOOD_IDS}
    assert not told(caplog, logging.ERROR)
    store_return(master, p2(jid, ""))
    assert len(told(caplog, logging.ERROR)) == 1
    assert len(master.get_jid(jid)) == len(GOOD_IDS)


def test_s52_salt_ssh(master):
    assert salt.utils.jid.is_jid(master.prep_jid())
    assert salt.utils.jid.is_jid(master.prep_jid(passed_jid=None))
    assert salt.utils.jid.is_jid(master.prep_jid(nocache=False))
    jid = new_jid()
    load = {"tgt_type": "glob", "tgt": "*", "user": "root", "fun": "test.ping", "arg": []}
    load["jid"] = jid
    master.save_load(jid, load)
    assert {**master.get_load(jid), "Minions": []} == {**load, "Minions": []}
    master.save_load(jid, load, minions={"h1": 1}.keys())
    assert master.get_load(jid)["Minions"] == ["h1"]
    master.returner({"jid": jid, "id": "h1", "return": {"stdout": "x"}, "fun": "test.ping"})
    got = master.get_jid(jid)["h1"]
    assert got["return"] == {"stdout": "x"}
    assert "retcode" not in got
    assert jid in master.get_jids()


def test_s53_p10_a_runners_job(master, jobs):
    jid = new_jid()
    ret = p10(jid)
    store_return(master, ret)
    shown = jobs("list_job", jid)
    assert "Error" not in shown
    assert (shown["Function"], shown["User"]) == ("runner.test.arg", "sudo_alice")
    assert shown["Result"]["m_master"]["return"] == p10(jid)["return"]
    assert list(jobs("list_jobs", search_function="runner.*")) == [jid]
    # The load is the return, as local_cache has it.
    assert master.get_load(jid)["return"] == p10(jid)["return"]


def test_s81_p11_orchestrate(master, jobs):
    jid = new_jid()
    store_return(master, p11(jid))
    assert jobs("lookup_jid", jid) == {"m_master": p11(jid)["return"]}


def test_s60_last_function_of_each_minion(master):
    for minion, fun, result in [
        ("alpha", "test.ping", True),
        ("alpha", "test.ping", False),
        ("alpha", "test.version", "1"),
        ("beta", "test.ping", True),
    ]:
        jid = new_jid()
        store_return(master, p2(jid, minion, result, fun=fun))
    assert master.get_fun("test.ping") == {"beta": "test.ping"}
    assert master.get_fun("test.version") == {"alpha": "test.version"}
    assert master.get_fun("none.such") == {}
    assert master.get_minions() == ["alpha", "beta"]


def test_s63_metadata(master, jobs):
    task = {"task_id": "t1"}
    jids = [new_jid() for _ in range(3)]
    master.save_load(jids[0], p1(jids[0], metadata=task), ["alpha"])
    master.save_load(jids[1], p1(jids[1], kwargs={"metadata": task}), ["alpha"])
    arg = ["x", {"__kwarg__": True, "metadata": task}]
    master.save_load(jids[2], p1(jids[2], arg=arg), ["alpha"])
    found = jobs("list_jobs", search_metadata=task)
    assert {jids[0], jids[1]} <= set(found)
    assert found[jids[0]]["Metadata"] == task
    assert master.get_load(jids[2])["arg"] == arg


def test_s69_a_job_that_was_asked_for_too_early(master):
    for _ in range(50):
        jid = new_jid()
        assert master.get_load(jid) == {}
        assert master.get_jid(jid) == {}
        master.save_load(jid, p1(jid), ["alpha"])
        assert master.get_load(jid)["tgt"] == "*"
        store_return(master, p2(jid))
        assert list(master.get_jid(jid)) == ["alpha"]


WANTED = """prep_jid save_load save_minions get_load get_jid get_jids get_jids_filter get_fun
get_minions returner event_return clean_old_jobs update_endtime get_endtime save_reg load_reg"""


def test_s82_all_functions_and_no_others(master):
    loaded = {name for name in master.loader if name.startswith("saltern.")}
    assert loaded == {f"saltern.{name}" for name in WANTED.split()}


@pytest.mark.parametrize(
    ("ret", "field"),
    [({}, "jid"), ({"jid": "1"}, "id"), ({"jid": "1", "id": "a"}, "return"), (None, "jid")],
)
def test_s82_a_bad_return_is_one_error_that_names_the_field(master, caplog, ret, field):
    master.returner(ret)
    (error,) = told(caplog, logging.ERROR)
    assert repr(field) in error


def test_s83_a_second_daemon_on_one_folder_refuses(daemon, master):
    other = Daemon(daemon.folder, "other.sock")
    with pytest.raises(AssertionError, match="did not start"):
        other.start()
    other.stop()
    jid = new_jid()
    master.save_load(jid, p1(jid), ["alpha"])
    assert master.get_load(jid)


def test_endtime_is_the_text_as_it_came(master, jobs):
    jid = new_jid()
    master.save_load(jid, p1(jid), ["alpha"])
    assert master.get_endtime(jid) is False
    for text in ("2026, Dec 01 03:09:07.888491", "2026, Dec 01 03:09:08.000000"):
        master.update_endtime(jid, text)
        assert master.get_endtime(jid) == text
    with_endtime = Loaded({**master.opts, "job_cache_store_endtime": True})
    assert with_endtime.get_jids()[jid]["EndTime"] == "2026, Dec 01 03:09:08.000000"
    assert "EndTime" not in master.get_jids()[jid]


def test_thoriums_register(master):
    assert master.load_reg() == {}
    register = {"a": {"val": [1, b"\xff"]}}
    master.save_reg(register)
    assert master.load_reg() == register


def test_the_argument_of_save_load_is_not_changed_and_secrets_do_not_leave(daemon, master):
    jid = new_jid()
    kwargs = {"password": "s3cr3t-1", "token": "s3cr3t-2", "username": "u", "metadata": {"a": 1}}
    load = p1(jid, key="s3cr3t-3", token="s3cr3t-4", kwargs=kwargs)
    before = {**load, "kwargs": dict(kwargs)}
    master.save_load(jid, load, ["alpha"])
    assert load == before
    kept = master.get_load(jid)
    assert kept["kwargs"] == {"username": "u", "metadata": {"a": 1}}
    assert "s3cr3t" not in repr(kept)
    assert "s3cr3t" not in repr(master.get_jids())
