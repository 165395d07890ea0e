"""
What is sent, and what comes of the answers that a Saltern may give.
"""

import logging
import os
import socket
import sys
import threading

import msgpack
import pytest
import salt.exceptions

from tests.annex import P9
from tests.annex import p1
from tests.annex import p2
from tests.annex import p16
from tests.annex import store_return
from tests.conftest import told
from tests.unit.conftest import FakeSaltern
from tests.unit.conftest import Refusal
from tests.unit.conftest import load_module


def unpacked(data):
    return msgpack.unpackb(data, strict_map_key=False)


def test_a_return_is_one_round_trip(module, fake):
    ret = p2("20240801142738891639", ts=1)
    store_return(module, ret)
    assert fake.methods() == ["save_return"]
    header, result, rest, times, load = fake.last("save_return")
    assert header == {
        "jid": ret["jid"],
        "id": "alpha",
        "fun": "test.ping",
        "master": "m1",
        "keep": 86400,
        "retcode": 0,
        "success": True,
    }
    assert unpacked(result) is True
    assert unpacked(times) == {"_stamp": ret["_stamp"], "ts": 1}
    others = {k: v for k, v in ret.items() if k not in ("return", "_stamp", "ts")}
    assert unpacked(rest) == others
    load_header, packed, minions = load
    assert load_header["shape"] == "return"
    assert unpacked(packed) == {k: v for k, v in ret.items() if k != "return"}
    assert minions is None


def test_prep_jid_with_a_jid_asks_nobody(module, fake):
    assert module.prep_jid(False, passed_jid="20240801142738891639") == "20240801142738891639"
    assert fake.asked == []


def test_the_load_of_a_minted_jid_is_sent_at_once(module, fake):
    fake.answers["prep_jid"] = "20240801142738891639"
    jid = module.prep_jid(nocache=False)
    assert fake.last("prep_jid") == [False, 86400]
    module.save_load(jid, p2(jid))
    assert fake.methods() == ["prep_jid", "save_load"]
    header, packed, _ = fake.last("save_load")
    assert header["shape"] == "return"
    assert unpacked(packed)["return"] is True
    module.save_load(jid, p2(jid))
    module.returner(p2(jid))
    assert fake.methods() == ["prep_jid", "save_load", "save_return"]
    assert fake.last("save_return")[4] is not None


def test_a_held_load_is_stored_if_no_return_follows(module, fake):
    module.save_load("j1", p2("j1"))
    assert fake.methods() == []
    module.save_load("j2", p2("j2"))
    assert fake.methods() == ["save_load"]
    module.returner(p2("j2", "beta"))
    assert fake.methods() == ["save_load", "save_load", "save_return"]
    assert fake.last("save_return")[4] is None


@pytest.mark.parametrize(
    ("load", "minions", "shape"),
    [
        (p1("j"), ["a"], "publish"),
        (p1("j"), None, "load"),
        ({"fun": "test.ping"}, ["a"], "load"),
        ({"return": 1, "tgt": "a"}, None, "return"),
    ],
)
def test_shapes_of_loads(module, fake, load, minions, shape):
    module.save_load("j", load, minions)
    assert fake.last("save_load")[0]["shape"] == shape


def test_the_header_of_a_load(module, fake):
    load = p1("j", tgt=["alpha", "beta"], tgt_type="list", fun=["test.ping", "test.version"])
    module.save_load(7, load, minions={"alpha", "beta"})
    header, _, minions = fake.last("save_load")
    assert header == {
        "jid": "7",
        "shape": "publish",
        "fun": "test.ping,test.version",
        "tgt": "alpha,beta",
        "tgt_type": "list",
        "user": "sudo_alice",
        "master": "m1",
        "keep": 86400,
    }
    assert sorted(minions) == ["alpha", "beta"]


FAILED = [
    (p2("j"), False),
    (p16("j"), True),
    (p2("j", success=False), True),
    (p2("j", retcode={"a": 0, "b": 2}, result={}), True),
    (p2("j", retcode=[0, 0], success=[True, False]), True),
    (p2("j", result=P9), False),
    (p2("j", result={k: {**v, "result": False} for k, v in P9.items()}), True),
    (p2("j", result={k: {**v, "result": None} for k, v in P9.items()}), False),
    (p2("j", result={"return": 1, "fun_args": [], "success": False}), True),
    ({"jid": "j", "id": "alpha", "return": {"result": False}}, False),
]


@pytest.mark.parametrize(("ret", "failed"), FAILED)
def test_the_header_tells_a_failure(module, fake, ret, failed):
    module.returner(ret)
    assert fake.last("save_return")[0].get("failed", False) is failed


def test_surrogates_are_marked(module, fake):
    module.returner(p2("caf\udce9", result="caf\udce9"))
    header, result, *_ = fake.last("save_return")
    assert header["surrogates"] is True
    assert header["jid"] == "caf\udce9"
    assert result == msgpack.packb("caf\udce9", unicode_errors="surrogatepass")


def test_hello_tells_who_calls(module, fake):
    module.__opts__["saltern"]["token"] = "t0ken"
    module.get_minions()
    (header,) = fake.last("hello")
    assert header["protocol"] == 1
    assert (header["role"], header["id"], header["token"]) == ("master", "m1", "t0ken")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\xc1",
        msgpack.packb([1, 99, None, True]),
        msgpack.packb([0, 1, "x", []]),
        msgpack.packb({"a": 1}),
    ],
)
def test_garbage_is_no_answer(module, fake, answer, caplog):
    fake.answers["get_load"] = answer
    with pytest.raises(salt.exceptions.NotImplemented, match="is not Saltern"):
        module.get_load("j")
    fake.answers["save_load"] = answer
    module.save_load("j", p1("j"), ["a"])
    assert not told(caplog, logging.ERROR)
    fake.answers["save_load"] = True
    module.clean_old_jobs()
    assert fake.methods().count("save_load") == 2


def test_an_idle_connection_that_was_closed_is_made_again(module, fake):
    module.get_minions()
    fake.close_idle()
    module.save_load("j", p1("j"), ["a"])
    assert fake.methods() == ["get_minions", "save_load"]
    assert fake.connections == 2


def test_a_connection_that_is_closed_before_the_answer_is_tried_once_more(module, fake):
    module.get_minions()
    fake.answers["get_load"] = FakeSaltern.CLOSE
    with pytest.raises(salt.exceptions.NotImplemented, match="closed"):
        module.get_load("j")
    assert fake.methods().count("get_load") == 2


def test_a_late_answer_does_not_become_that_of_the_next_call(module, fake):
    late = threading.Event()

    def answer(params):
        if params == ["first"]:
            late.wait(10)
        return {"fun": params[0]}

    fake.answers["get_load"] = answer
    module.__opts__["saltern"]["timeout"] = 0.1
    with pytest.raises(salt.exceptions.NotImplemented, match=r"no answer within 0\.1 s"):
        module.get_load("first")
    module.__opts__["saltern"]["timeout"] = 5
    late.set()
    os.unlink(module._Spool.of(module._options()).away)
    assert module.get_load("second") == {"fun": "second"}


@pytest.mark.parametrize("name", ["busy", "full", "unavailable"])
def test_what_may_succeed_later_waits_in_the_spool(module, fake, name, caplog):
    fake.answers["save_load"] = Refusal(name)
    module.save_load("j", p1("j"), ["a"])
    module.save_load("k", p1("k"), ["a"])
    fake.answers["save_load"] = True
    module.clean_old_jobs()
    stored = [params[0]["jid"] for method, params in fake.asked if method == "save_load"]
    assert stored[-2:] == ["j", "k"]
    assert not told(caplog, logging.ERROR)
    assert len([line for line in told(caplog) if "is away" in line]) == 1


@pytest.mark.parametrize("name", ["forbidden", "unsupported"])
def test_what_can_never_succeed_is_one_error(module, fake, name, caplog):
    fake.answers["save_load"] = Refusal(name)
    module.save_load("j", p1("j"), ["a"])
    (error,) = told(caplog, logging.ERROR)
    assert name in error
    assert fake.methods() == ["save_load"]


@pytest.mark.parametrize("name", ["too-large", "invalid"])
def test_a_refused_return_becomes_a_stub(module, fake, name, caplog):
    def small_only(params):
        return "stored" if b"saltern" in params[1] else Refusal(name)

    fake.answers["save_return"] = small_only
    module.returner(p2("j", result="y" * 5000, retcode=7))
    _, result, rest, *_ = fake.last("save_return")
    stub = unpacked(result)
    assert stub["head"] == "y" * 1000
    assert stub["retcode"] == 7
    assert stub["size"] == 5003
    if name == "too-large":
        assert unpacked(rest)["fun"] == "test.ping"
    assert not told(caplog, logging.ERROR)


def test_a_return_above_the_limit_is_not_even_sent(module, fake, caplog):
    module.get_minions()  # hello has told the limit, 64 KiB
    module.returner(p2("j", result={"out": "y" * 70_000}))
    stub = unpacked(fake.last("save_return")[1])
    assert stub["limit"] == 1 << 16
    assert stub["head"].startswith("{'out': 'yyy")
    assert len(told(caplog)) == 1


def test_a_load_above_the_limit_keeps_what_is_small(module, fake):
    module.get_minions()
    module.save_load("j", p1("j", arg=["y" * 70_000]), ["a"])
    load = unpacked(fake.last("save_load")[1])
    assert load["tgt"] == "*"
    assert load["arg"]["size"] > 70_000


def test_an_event_above_the_limit_becomes_a_stub(module, fake):
    module.get_minions()
    module.event_return([{"tag": "t", "data": {"_stamp": "now", "big": "y" * 70_000}}])
    ((_, tag, data, _),) = fake.last("save_events")[1]
    assert tag == "t"
    assert unpacked(data)["_stamp"] == "now"
    assert unpacked(data)["big"]["size"] > 70_000


@pytest.mark.parametrize(
    ("hello", "text"),
    [
        (Refusal("unsupported", "protocol 1; this saltern speaks 2"), "speaks 2"),
        (Refusal("forbidden", "no such token"), "no such token"),
        (True, "is not Saltern"),
        (FakeSaltern.CLOSE, "closed"),
    ],
)
def test_a_saltern_that_refuses_the_returner_is_away(module, fake, hello, text, caplog):
    fake.answers["hello"] = hello
    module.save_load("j", p1("j"), ["a"])
    with pytest.raises(salt.exceptions.NotImplemented, match=text):
        module.get_load("j")
    assert not told(caplog, logging.ERROR)
    assert fake.methods() == []


def test_another_namespace_is_not_used(module, fake):
    module.__opts__["saltern"]["namespace"] = "blue"
    with pytest.raises(salt.exceptions.NotImplemented, match="namespace"):
        module.get_load("j")
    fake.answers["hello"]["namespace"] = "blue"
    assert module.get_load("j") == {}


def test_tcp(module, fake, monkeypatch):
    listener = socket.create_server(("127.0.0.1", 0))
    fake.listener.close()
    fake.listener = listener
    threading.Thread(target=fake.accept, daemon=True).start()
    port = listener.getsockname()[1]
    module.__opts__["saltern"]["address"] = f"tcp:127.0.0.1:{port}"
    assert module.get_load("j") == {}
    module.__opts__["saltern"]["address"] = f"tcp:[::ffff:127.0.0.1]:{port}"
    assert module.get_load("j") == {}


@pytest.mark.parametrize("address", ["nowhere", "tcp:host", "tcp::1", "http:x:1", "unix:", 7, "/s"])
def test_an_address_that_is_none_is_told(module, address):
    module.__opts__["saltern"]["address"] = address
    with pytest.raises(salt.exceptions.NotImplemented, match="unix:PATH or tcp:HOST:PORT"):
        module.get_load("j")


def test_a_system_without_unix_sockets_locks_and_owners(short_dir, monkeypatch):
    monkeypatch.delattr(socket, "AF_UNIX")
    for name in ("fcntl", "pwd"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("os.geteuid")
    module = load_module()
    assert module.__virtual__() == "saltern"
    module.__opts__ = {"__role": "minion", "saltern": {"spool_dir": f"{short_dir}/spool"}}
    with pytest.raises(salt.exceptions.NotImplemented, match="set saltern.address"):
        module.get_load("j")
    with pytest.raises(salt.exceptions.NotImplemented, match="set saltern.address"):
        module.get_jids()
    module.returner(p2("j"))
    module.returner(p2("k"))
    module.__opts__["saltern"]["address"] = "unix:/run/x"
    with pytest.raises(salt.exceptions.NotImplemented, match="no Unix sockets"):
        module.get_load("j")
    listener = socket.create_server(("127.0.0.1", 0))
    fake = FakeSaltern.__new__(FakeSaltern)
    fake.asked, fake.connections, fake.open, fake.listener = [], 0, [], listener
    fake.answers = {"hello": {"max_payload": 1 << 20}, "save_return": "stored"}
    threading.Thread(target=fake.accept, daemon=True).start()
    module.__opts__["saltern"]["address"] = f"tcp:127.0.0.1:{listener.getsockname()[1]}"
    module.clean_old_jobs()
    fake.close()
    assert fake.methods() == ["save_return", "save_return", "clean_old_jobs"]
