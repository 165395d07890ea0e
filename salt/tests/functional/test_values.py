"""
Table R1 and the cases about values: what goes in comes out as local_cache gives it, or better.
"""

import collections
import datetime
import decimal
import logging
import math
import pathlib
import sys
import uuid

import pytest
import salt.payload
import salt.utils.immutabletypes as immutable
from salt.utils.data import CaseInsensitiveDict

from tests.annex import P3_SIG
from tests.annex import P4_DER
from tests.annex import P5_GIF
from tests.annex import P9
from tests.annex import new_jid
from tests.annex import p1
from tests.annex import p2
from tests.annex import store_return
from tests.conftest import told

MOMENT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)

# Table R1: what is sent, and what local_cache gives back.
R1 = {
    "int keys": ({1: "a", 2: {3: "b"}}, {1: "a", 2: {3: "b"}}),
    "tuple": ((1, 2), [1, 2]),
    "bytes": ({"k": b"\x82\x01\xff"}, {"k": b"\x82\x01\xff"}),
    "bytes key": ({b"\x82": "v"}, {b"\x82": "v"}),
    "datetime": ({"t": MOMENT}, {"t": MOMENT}),
    "date": ({"t": datetime.date(2024, 1, 2)}, {"t": datetime.datetime(2024, 1, 2)}),
    "none key": ({None: "v"}, {None: "v"}),
    "bool key": ({True: "v"}, {True: "v"}),
    "float key": ({1.5: "v"}, {1.5: "v"}),
    "infinity": ({"i": math.inf, "m": -math.inf}, {"i": math.inf, "m": -math.inf}),
    "large ints": ([2**63 - 1, 2**64 - 1, -(2**63)], [2**63 - 1, 2**64 - 1, -(2**63)]),
    "huge int": (2**70, "1180591620717411303424"),
    "nul": ({"s": "a\x00b"}, {"s": "a\x00b"}),
    "apostrophes": ({"s": "it's 'ok'"}, {"s": "it's 'ok'"}),
    "None": (None, None),
    "False": (False, False),
    "empty text": ("", ""),
    "empty dict": ({}, {}),
    "empty list": ([], []),
}
# Better than local_cache, which raises.
BETTER = {
    "lone surrogate": ({"s": "caf\udce9"}, {"s": "caf\udce9"}),
    "an exception": (ValueError("no"), "ValueError('no')"),
    "tuple key": ({("a", 1): "v"}, {("a", 1): "v"}),
}
# S31: values Python knows and JSON does not.
S31 = {
    "OrderedDict": (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    "dict subclass": (collections.Counter("aab"), {"a": 2, "b": 1}),
    "ImmutableDict": (immutable.ImmutableDict({"a": [1]}), {"a": [1]}),
    "CaseInsensitiveDict": (CaseInsensitiveDict({"A": 1}), {"A": 1}),
    "Decimal": ({"d": decimal.Decimal("1.10"), "e": 1}, {"d": "1.10", "e": 1}),
    "UUID": ([uuid.UUID(int=7)], ["00000000-0000-0000-0000-000000000007"]),
    "Path": ({"p": pathlib.Path("/etc/motd")}, {"p": "/etc/motd"}),
    "range": (range(3), "range(0, 3)"),
    "dict_keys": ({"a": 1}.keys(), ["a"]),
    "dict_values": ({"a": 1}.values(), [1]),
    "class": ({"c": int}, {"c": "<class 'int'>"}),
    "frozenset": (frozenset(["a"]), ["a"]),
}
# S33: numbers that a gateway may change.
S33 = [9007199254740993, 1.0, -0.0, 1e308, 0, -1, 2**53 + 1, 1e-300]


def kept(returner, value, **more):
    jid = new_jid()
    returner.save_load(jid, p1(jid), ["alpha"])
    store_return(returner, p2(jid, result=value, **more))
    return returner.get_jid(jid)["alpha"]["return"]


@pytest.mark.parametrize("name", R1)
def test_s02_r1_value_comes_back_as_local_cache_gives_it(master, name):
    sent, expected = R1[name]
    got = kept(master, sent)
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize("name", R1)
def test_r1_is_what_salt_payload_gives(name):
    sent, expected = R1[name]
    packed = salt.payload.dumps({"return": sent}, use_bin_type=True)
    assert salt.payload.loads(packed, encoding="utf-8") == {"return": expected}


@pytest.mark.parametrize("name", BETTER)
def test_s02_r1_what_local_cache_refuses_is_kept(master, name):
    sent, expected = BETTER[name]
    assert kept(master, sent) == expected


def test_s02_r1_set_nan_and_order_of_keys(master):
    assert sorted(kept(master, {"s": {"a", "b"}})["s"]) == ["a", "b"]
    assert math.isnan(kept(master, {"n": math.nan})["n"])
    assert list(kept(master, {"b": 1, "a": 2})) == ["b", "a"]


def test_s02_binary_as_the_whole_return_in_a_list_and_in_a_diff(master):
    diff = {"state": {"changes": {"diff": P5_GIF}}}
    for value in (P4_DER, [P4_DER], {"data": P4_DER}, diff):
        assert kept(master, value) == value
    jid = new_jid()
    store_return(master, p2(jid, sig=P3_SIG))
    assert master.get_jid(jid)["alpha"]["sig"] == P3_SIG


@pytest.mark.parametrize("name", S31)
def test_s31_odd_values_become_plain_and_the_rest_is_intact(master, name, caplog):
    sent, expected = S31[name]
    got = kept(master, {"odd": sent, "rest": [1]})
    assert got == {"odd": expected, "rest": [1]}
    assert len(told(caplog)) <= 1
    assert not told(caplog, logging.ERROR)


def test_s31_generator_and_a_hostile_repr(master, caplog):
    class Hostile:
        def __repr__(self):
            raise RuntimeError("no")

    got = kept(master, {"g": (i for i in range(3)), "h": Hostile(), "rest": 1})
    assert "generator" in got["g"]
    assert got["h"] == "<Hostile>"
    assert got["rest"] == 1
    assert len(told(caplog)) == 1


def test_s31_nested_too_deeply_and_recursive(master):
    deep = "end"
    for _ in range(3000):
        deep = [deep]
    got = kept(master, {"deep": deep, "rest": 1})
    assert got["rest"] == 1
    knot = {"name": "knot"}
    knot["self"] = [knot, knot]
    got = kept(master, knot)
    assert got["name"] == "knot"
    ok = 1
    for _ in range(600):
        ok = [ok]
    assert kept(master, ok) == ok


def test_s31_no_depth_makes_the_other_returns_unreadable(master):
    """Near 1024 levels the decoder of Salt ends, a few levels before the answer does."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        jid = new_jid()
        store_return(master, p2(jid, "beta", "clean"))
        for depth in (1010, 1016, 1017, 1020, 1022, 1024, 1030):
            deep = "end"
            for _ in range(depth):
                deep = [deep]
            store_return(master, p2(jid, f"deep{depth}", deep))
            got = master.get_jid(jid)
            assert got["beta"]["return"] == "clean"
            if depth <= 1016:
                assert got[f"deep{depth}"]["return"] == deep
    finally:
        sys.setrecursionlimit(limit)


def test_s31_the_argument_is_not_changed(master):
    value = {"big": 2**70, "set": {1}, "inner": [2**70, {"x": (1, 2)}]}
    ret = p2(new_jid(), result=value)
    store_return(master, ret)
    assert ret["return"] == {"big": 2**70, "set": {1}, "inner": [2**70, {"x": (1, 2)}]}


@pytest.mark.parametrize(
    "text",
    [
        "x" * 257948 + "\udce9" + "y",
        {"f": "caf\udce9", "\udcff": "key", "other": ["clean"]},
        b"\xec",
        "\U0001f9c2 e\u0301 \xe9 \u2028 \uffff \x00",
    ],
    # pytest puts the id into the environment, where 258 kB do not fit.
    ids=["long", "keys and values", "bytes", "unicode"],
)
def test_s32_text_that_is_not_clean_comes_back_equal(master, text):
    assert kept(master, text) == text


def test_s32_surrogates_do_not_hurt_the_other_minions(master):
    jid = new_jid()
    store_return(master, p2(jid, "alpha", "caf\udce9"))
    store_return(master, p2(jid, "beta", "clean"))
    got = master.get_jid(jid)
    assert {m: r["return"] for m, r in got.items()} == {"alpha": "caf\udce9", "beta": "clean"}


def test_tuple_keys_do_not_hurt_the_other_minions(master):
    jid = new_jid()
    store_return(master, p2(jid, "alpha", {("a", ("b", 1)): 1}))
    store_return(master, p2(jid, "beta", "clean"))
    got = master.get_jid(jid)
    assert got["alpha"]["return"] == {("a", ("b", 1)): 1}
    assert got["beta"]["return"] == "clean"


def test_s33_numbers_keep_value_and_type(master):
    got = kept(master, S33)
    assert got == S33
    assert [type(n) for n in got] == [type(n) for n in S33]
    assert math.copysign(1, got[2]) == -1


def test_s59_s62_quotes_and_odd_keys(master):
    assert kept(master, P9) == P9
    for value in ("'", "''", "a\\'b", {"": 1, " ": 2, "a.b": 3, "$set": 4, "a:b": 5, "a|b": 6}):
        assert kept(master, value) == value
    assert kept(master, {"k" * 10000: 1}) == {"k" * 10000: 1}
    assert kept(master, "ok", fun_args=["O'Neil"]) == "ok"
