"""
The spool: what waits, for how long, who tries, and what a crash leaves.
"""

import datetime
import logging
import os
import time
import types

import msgpack
import pytest
import salt.exceptions
import salt.utils.jid

from tests.annex import p1
from tests.annex import p2
from tests.conftest import forget
from tests.conftest import told
from tests.unit.conftest import FakeSaltern
from tests.unit.conftest import Refusal
from tests.unit.conftest import load_module


class Clock:
    """
    The time module, with a time that goes only when it is told to. It begins now: the times of
    files are compared with it.
    """

    def __init__(self):
        self.now = time.time()

    def time(self):
        return self.now

    def time_ns(self):
        self.now += 1e-6
        return int(self.now * 1e9)

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(module):
    module.time = Clock()
    return module.time


def folder(module):
    return module._Spool.of(module._options()).folder


def segments(module):
    return sorted(name for name in os.listdir(folder(module)) if name.endswith(".seg"))


def another_process(module):
    """
    The same module in a new process.
    """
    forget()
    other = load_module()
    other.__opts__ = module.__opts__
    other.time = module.time
    return other


HANGING = ("hello", "save_load", "get_minions", "clean_old_jobs", "save_return")


def hang(module, fake):
    module.__opts__["saltern"]["timeout"] = 0.1
    fake.answers |= dict.fromkeys(HANGING, FakeSaltern.HANG)


def go_on(module, fake):
    module.__opts__["saltern"]["timeout"] = 5
    fake.answers |= dict.fromkeys(HANGING, True)
    fake.answers["hello"] = {"max_payload": 1 << 20}


def test_after_one_time_out_all_processes_leave_a_hung_saltern_alone(module, fake, clock):
    hang(module, fake)
    module.save_load("j0", p1("j0"), ["a"])
    asked = len(fake.asked)
    other = another_process(module)
    for number in range(1, 6):
        other.save_load(f"j{number}", p1("j"), ["a"])
    with pytest.raises(salt.exceptions.NotImplemented, match=r"no answer within 0\.1 s"):
        other.get_load("j0")
    assert len(fake.asked) == asked
    go_on(module, fake)
    clock.now += 2.1
    module.clean_old_jobs()
    stored = [params[0]["jid"] for method, params in fake.asked if method == "save_load"]
    assert stored == [f"j{number}" for number in range(6)]
    assert not os.path.exists(f"{folder(module)}/away")
    assert segments(module) == []


def test_the_delay_doubles_up_to_30_seconds(module, fake, clock):
    hang(module, fake)
    delays = []
    for _ in range(7):
        module.save_load("j", p1("j"), ["a"])
        state = module._Spool.of(module._options())._state()
        delays.append(state["delay"])
        clock.now = state["until"] + 0.01
    assert delays == [2, 4, 8, 16, 30, 30, 30]


def test_one_process_tries_a_hung_saltern_and_the_others_do_not_wait(module, fake, clock):
    hang(module, fake)
    module.save_load("j", p1("j"), ["a"])
    clock.now += 2.1
    options = module._options()
    spool = module._Spool.of(options)
    with spool.turn(options):
        asked = len(fake.asked)
        other = another_process(module)
        other.save_load("k", p1("k"), ["a"])
        assert len(fake.asked) == asked
    # It has given the turn back.
    with spool.turn(options):
        pass


def test_a_turn_whose_process_died_is_taken_over(module, fake, clock):
    hang(module, fake)
    module.save_load("j", p1("j"), ["a"])
    with open(f"{folder(module)}/probe", "w", encoding="utf-8"):
        os.utime(f"{folder(module)}/probe", (clock.now - 100, clock.now - 100))
    clock.now += 2.1
    go_on(module, fake)
    module.clean_old_jobs()
    assert fake.methods()[-1] == "clean_old_jobs"


def test_a_clock_that_was_set_back_does_not_keep_saltern_away(module, fake, clock):
    hang(module, fake)
    module.save_load("j", p1("j"), ["a"])
    clock.now -= 3600
    go_on(module, fake)
    module.clean_old_jobs()
    assert not os.path.exists(f"{folder(module)}/away")


def test_each_change_of_state_is_one_line(module, fake, clock, caplog):
    hang(module, fake)
    for process in (module, another_process(module)):
        for _ in range(3):
            process.save_load("j", p1("j"), ["a"])
            clock.now += 40
    go_on(module, fake)
    module.clean_old_jobs()
    another_process(module).clean_old_jobs()
    lines = told(caplog)
    assert len(lines) == 2
    assert "is away" in lines[0]
    assert "is back" in lines[1]


def away(module, fake):
    fake.close()
    os.unlink(fake.path)


def back(module, fake):
    again = FakeSaltern(fake.path)
    again.answers["hello"] = {"max_payload": 1 << 20}
    return again


def test_a_full_spool_is_told_of_once_and_counted(module, fake, caplog):
    away(module, fake)
    module.__opts__["saltern"]["spool_max"] = 2000
    for number in range(20):
        module.save_load(f"j{number}", p1("j"), ["a"])
    assert module.prep_jid()
    assert sum(os.path.getsize(f"{folder(module)}/{name}") for name in segments(module)) <= 2000
    (error,) = told(caplog, logging.ERROR)
    assert "full" in error
    dropped = os.path.getsize(f"{folder(module)}/full")
    again = back(module, fake)
    module.clean_old_jobs()
    again.close()
    kept = again.methods().count("save_load")
    assert 0 < kept < 20
    assert kept + dropped == 20
    assert f"{dropped} requests were lost" in told(caplog, logging.ERROR)[-1]


def test_a_torn_request_at_the_end_hurts_none_before_or_after(module, fake, clock, caplog):
    away(module, fake)
    module.save_load("j0", p1("j"), ["a"])
    module.save_load("j1", p1("j"), ["a"])
    (name,) = segments(module)
    path = f"{folder(module)}/{name}"
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) - 7)
    another_process(module).save_load("j2", p1("j"), ["a"])
    assert len(segments(module)) == 2
    again = back(module, fake)
    clock.now = os.path.getmtime(path) + 61
    module.clean_old_jobs()
    module.clean_old_jobs()
    again.close()
    stored = [params[0]["jid"] for method, params in again.asked if method == "save_load"]
    assert stored == ["j0", "j2"]
    assert segments(module) == []
    assert [line for line in told(caplog, logging.ERROR) if "torn" in line]


def test_every_torn_length_is_read_up_to_the_last_whole_request(module, short_dir):
    record = module._RECORD.pack(module._MAGIC, 5, module.zlib.crc32(b"hello")) + b"hello"
    path = f"{short_dir}/torn"
    for length in range(len(record) + 1):
        with open(path, "wb") as file:
            file.write(record + record[:length])
        with open(path, "rb") as file:
            batch, offset = module._records(file, 0)
        whole = 2 if length == len(record) else 1
        assert (batch, offset) == ([b"hello"] * whole, len(record) * whole)
    for position in range(len(record)):
        flipped = bytearray(record)
        flipped[position] ^= 1
        with open(path, "wb") as file:
            file.write(record + flipped)
        with open(path, "rb") as file:
            assert module._records(file, 0)[0] == [b"hello"]


def test_a_drain_that_is_cut_off_goes_on_where_it_was(module, fake, clock):
    away(module, fake)
    for number in range(100):
        module.save_load(f"j{number}", p1("j"), ["a"])
    again = back(module, fake)
    o = module._options()
    spool = module._Spool.of(o)
    spool.drain(o, 0)
    assert len(again.methods()) == 32
    forget()
    spool.drain(o, 0)
    assert len(again.methods()) == 64
    module.clean_old_jobs()
    again.close()
    stored = [params[0]["jid"] for method, params in again.asked if method == "save_load"]
    assert stored == [f"j{number}" for number in range(100)]


def test_what_saltern_refuses_for_good_does_not_block_the_rest(module, fake, caplog):
    away(module, fake)
    for jid in ("good", "bad", "large", "better"):
        module.save_load(jid, p1(jid, arg=["y" * 100]), ["a"])
    again = back(module, fake)

    def answer(params):
        refused = {"bad": "forbidden", "large": "too-large"}.get(params[0]["jid"])
        if refused and b"saltern" not in params[1]:
            return Refusal(refused)
        return True

    again.answers["save_load"] = answer
    module.clean_old_jobs()
    again.close()
    assert segments(module) == []
    stored = [params[0]["jid"] for method, params in again.asked if method == "save_load"]
    assert set(stored) == {"good", "bad", "large", "better"}
    assert len(told(caplog, logging.ERROR)) == 1


def test_a_spool_that_cannot_be_written_is_told_of_once(module, fake, short_dir, caplog):
    away(module, fake)
    with open(f"{short_dir}/file", "w", encoding="utf-8"):
        module.__opts__["saltern"]["spool_dir"] = f"{short_dir}/file"
    for _ in range(3):
        module.save_load("j", p1("j"), ["a"])
        module.returner(p2("j"))
        module.event_return([{"tag": "t", "data": {}}])
    assert module.prep_jid()
    assert len(told(caplog, logging.ERROR)) == 1
    assert len(told(caplog)) == 2


def test_without_a_folder_a_hung_saltern_is_still_left_alone(module, fake, clock, short_dir):
    with open(f"{short_dir}/file", "w", encoding="utf-8"):
        module.__opts__["saltern"]["spool_dir"] = f"{short_dir}/file"
    hang(module, fake)
    module.save_load("j", p1("j"), ["a"])
    asked = len(fake.asked)
    module.save_load("j", p1("j"), ["a"])
    assert len(fake.asked) == asked
    go_on(module, fake)
    clock.now += 3
    module.save_load("j", p1("j"), ["a"])
    assert fake.methods() == ["save_load"]


def test_a_linked_file_in_the_spool_is_not_written_to(module, fake, short_dir, caplog):
    away(module, fake)
    os.makedirs(f"{short_dir}/spool/master", mode=0o700)
    with open(f"{short_dir}/victim", "w", encoding="utf-8"):
        os.symlink(f"{short_dir}/victim", f"{short_dir}/spool/master/lock")
        os.link(f"{short_dir}/victim", f"{short_dir}/spool/master/tail")
    module.save_load("j", p1("j"), ["a"])
    assert os.path.getsize(f"{short_dir}/victim") == 0


def test_an_address_of_ret_kwargs_has_no_spool_and_gets_no_token(module, fake, short_dir, caplog):
    module.__opts__["__role"] = "minion"
    module.__opts__["saltern"]["token"] = "t0ken"
    other = FakeSaltern(f"{short_dir}/other.sock")
    mine = {"address": f"unix:{other.path}"}
    module.returner(p2("j", ret_kwargs=mine))
    assert "token" not in other.last("hello")[0]
    module.returner(p2("k", ret_kwargs={**mine, "token": "other"}))
    assert other.last("hello")[0]["token"] == "other"
    other.close()
    os.unlink(other.path)
    module.returner(p2("l", ret_kwargs={**mine, "spool_dir": f"{short_dir}/evil"}))
    assert not os.path.exists(f"{short_dir}/evil")
    assert not os.path.exists(f"{short_dir}/spool")
    assert len(told(caplog, logging.ERROR)) == 1
    assert fake.asked == []


def test_what_waits_for_another_profile_is_not_sent_to_this_one(module, fake, short_dir):
    module.__opts__["__role"] = "minion"
    module.__opts__["blue.saltern"] = {"address": f"unix:{short_dir}/blue.sock"}
    module.returner(p2("j", ret_config="blue"))
    module.returner(p2("k"))
    module.clean_old_jobs()
    assert [p[0]["jid"] for m, p in fake.asked if m == "save_return"] == ["k"]
    blue = FakeSaltern(f"{short_dir}/blue.sock")
    module.returner(p2("l", ret_config="blue"))
    blue.close()
    assert [p[0]["jid"] for m, p in blue.asked if m == "save_return"] == ["j", "l"]


def test_s25_jids_made_here_are_unique_with_a_frozen_clock(module, fake, monkeypatch):
    away(module, fake)
    frozen = datetime.datetime(2026, 12, 1, 23, 59, 59, 999_998)
    monkeypatch.setattr(salt.utils.jid, "_utc_now", lambda: frozen)
    jids = [module.prep_jid() for _ in range(5)]
    jids += [another_process(module).prep_jid() for _ in range(5)]
    assert len(set(jids)) == 10
    assert all(salt.utils.jid.is_jid(jid) for jid in jids)
    assert jids == sorted(jids)
    assert jids[2] == "20261202000000000000"


def test_nothing_of_the_module_is_in_its_globals_of_a_second_loader(module, fake):
    module.save_load("j", p1("j"), ["a"])
    again = load_module()
    again.__opts__ = module.__opts__
    again.save_load("k", p1("k"), ["a"])
    assert fake.connections == 1


def test_a_wrong_file_in_the_place_of_the_state_is_survived(module, fake):
    os.makedirs(f"{folder(module)}", mode=0o700)
    for text in ("", "no json", "[]", "{}", '{"until": "x", "delay": null}'):
        with open(f"{folder(module)}/away", "w", encoding="utf-8") as file:
            file.write(text)
        module.save_load("j", p1("j"), ["a"])
        assert not os.path.exists(f"{folder(module)}/away")


def test_the_spool_holds_requests_and_nothing_secret(module, fake):
    away(module, fake)
    load = p1("j", key="s3cr3t", kwargs={"password": "s3cr3t", "metadata": {"a": 1}})
    module.save_load("j", load, ["a"])
    (name,) = segments(module)
    with open(f"{folder(module)}/{name}", "rb") as file:
        (body,), _ = module._records(file, 0)
    assert b"s3cr3t" not in body
    unpacker = msgpack.Unpacker(strict_map_key=False)
    unpacker.feed(body)
    method, (header, packed, minions) = unpacker.unpack(), unpacker.unpack()
    assert (method, header["jid"], minions) == ("save_load", "j", ["a"])
    assert msgpack.unpackb(packed)["kwargs"] == {"metadata": {"a": 1}}


def test_the_spool_of_another_user_has_a_folder_beside_it(module, fake, short_dir, monkeypatch):
    os.makedirs(f"{short_dir}/spool/master", mode=0o700)
    other = types.SimpleNamespace(**{name: getattr(os, name) for name in dir(os)})
    other.geteuid = lambda: 4711
    monkeypatch.setattr(module, "os", other)
    spool = module._Spool(module._options())
    assert spool.folder == f"{short_dir}/spool/master.4711"
