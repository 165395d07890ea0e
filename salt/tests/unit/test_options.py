"""
Options, roles, retention.
"""

import re

import pytest

from tests.annex import p1
from tests.annex import p2
from tests.conftest import RETURNERS
from tests.conftest import Loaded
from tests.conftest import options
from tests.conftest import told
from tests.unit.conftest import load_module


@pytest.mark.parametrize("role", ["master", "minion", "proxy", "ssh", None])
def test_s86_loads_with_no_options_at_all(role):
    module = load_module()
    assert module.__virtual__() == "saltern"
    module.__opts__ = {"__role": role} if role else {}
    assert module.__virtual__() == "saltern"
    o = module._options()
    assert o.address == "unix:/run/saltern/saltern.sock"
    assert o.spool_dir == "/var/spool/saltern"
    assert (o.connect_timeout, o.timeout, o.list_timeout, o.spool_max) == (0.2, 1, 30, 1 << 30)


def test_s86_without_any_dunder():
    module = load_module()
    assert module._options().role == ""
    assert module.returner({}) is None


@pytest.mark.parametrize("role", ["master", "minion"])
def test_s86_salts_loader_gives_it_without_salt_pillar_and_grains(short_dir, role):
    loaded = Loaded(options(short_dir, "unix:/nowhere", role=role))
    assert loaded.prep_jid(passed_jid="1") == "1"


def test_nested_before_flat_and_the_configuration_before_the_pillar():
    module = load_module()
    module.__opts__ = {"saltern": {"token": "nested"}, "saltern.token": "flat", "token": "bare"}
    module.__pillar__ = {"saltern": {"token": "pillar", "namespace": "pillar"}}
    o = module._options()
    assert (o.token, o.namespace) == ("nested", "pillar")
    module.__opts__ = {"saltern.token": "flat", "saltern": None, "user": "root", "timeout": 5}
    o = module._options()
    assert (o.token, o.timeout) == ("flat", 1.0)
    module.__opts__ = {"pillar": {"saltern.token": "of the minion"}}
    module.__pillar__ = {}
    assert module._options().token == "of the minion"


@pytest.mark.parametrize(
    "profile",
    [
        {"alternative.saltern.token": "other"},
        {"alternative.saltern": {"token": "other"}},
        {"alternative": {"saltern": {"token": "other"}}},
    ],
)
def test_an_alternative_profile_and_what_it_leaves_out(profile):
    module = load_module()
    module.__opts__ = {"saltern": {"token": "own", "namespace": "own"}, **profile}
    o = module._options({"ret_config": "alternative"})
    assert (o.token, o.namespace) == ("other", "own")
    assert module._options({"ret_config": "none.such"}).token == "own"
    assert module._options({}).token == "own"


def test_a_return_does_not_move_a_master():
    module = load_module()
    module.__opts__ = {"__role": "master", "saltern": {"address": "unix:/a"}}
    ret = {"ret_kwargs": {"address": "unix:/b"}, "ret_config": "alternative"}
    assert module._options(ret).address == "unix:/a"
    module.__opts__["__role"] = "minion"
    assert module._options(ret).address == "unix:/b"
    assert module._options({"ret_kwargs": "no mapping"}).address == "unix:/a"


@pytest.mark.parametrize("value", ["x", -1, None, [], "1"])
def test_numbers_that_are_none(value, caplog):
    module = load_module()
    module.__opts__ = {"saltern": {"timeout": value}}
    assert [module._options().timeout for _ in range(3)] == [1.0] * 3
    warned = value not in (None, "1")
    assert len(told(caplog)) == warned


KEEP = [
    ({}, 86400, 0),
    ({"keep_jobs": 1}, 3600, 0),
    ({"keep_jobs_seconds": 1}, 1, 0),
    ({"keep_jobs": 1, "keep_jobs_seconds": 7200}, 7200, 0),
    ({"keep_jobs": 1, "keep_jobs_seconds": 86400}, 3600, 0),
    ({"keep_jobs": 24, "keep_jobs_seconds": 86400}, 86400, 0),
    ({"keep_jobs_seconds": 0}, 0, 0),
    ({"keep_jobs_seconds": 300.5}, 300, 0),
    ({"keep_jobs_seconds": None}, 86400, 1),
    ({"keep_jobs_seconds": "3600"}, 3600, 1),
    ({"keep_jobs_seconds": "for ever"}, 86400, 1),
    ({"keep_jobs_seconds": 10**12}, 3155760000, 1),
    ({"keep_jobs_seconds": -5}, 86400, 1),
]


@pytest.mark.parametrize(("opts", "seconds", "warnings"), KEEP)
def test_s45_how_long_jobs_are_kept(module, fake, caplog, opts, seconds, warnings):
    module.__opts__.update(opts)
    module.save_load("j", p1("j"), ["a"])
    module.returner(p2("j"))
    module.save_minions("j", ["b"])
    module.update_endtime("j", "now")
    assert fake.last("save_load")[0]["keep"] == seconds
    assert fake.last("save_return")[0]["keep"] == seconds
    assert fake.last("save_minions")[3] == seconds
    assert fake.last("update_endtime")[2] == seconds
    assert len(told(caplog)) == warnings


def test_s45_a_minion_that_says_nothing_leaves_it_to_saltern(module, fake):
    module.__opts__["__role"] = "minion"
    module.returner(p2("j"))
    assert "keep" not in fake.last("save_return")[0]
    module.__opts__["keep_jobs_seconds"] = 60
    module.returner(p2("j"))
    assert fake.last("save_return")[0]["keep"] == 60


def test_a_minion_makes_a_load_of_its_own_and_names_no_master(module, fake):
    module.__opts__["__role"] = "minion"
    module.returner(p2("j", fun_args=["x"], user="root"))
    header, *_, load = fake.last("save_return")
    assert "master" not in header
    assert load[0] == {
        "jid": "j",
        "shape": "return",
        "fun": "test.ping",
        "tgt": "alpha",
        "tgt_type": "glob",
        "user": "root",
    }
    assert load[2] == ["alpha"]


def test_the_package_and_the_file_have_one_version():
    versions = [
        re.findall(r'^__version__ = "(.+)"$', path.read_text(encoding="utf-8"), re.M)
        for path in (RETURNERS / "saltern.py", RETURNERS.parent / "__init__.py")
    ]
    assert versions[0] == versions[1]
    assert len(versions[0]) == 1


@pytest.mark.parametrize("address", ["unix:/nowhere/saltern.sock", "nonsense"])
def test_nothing_that_must_not_raise_raises(short_dir, address):
    master = Loaded(options(short_dir, address))
    assert re.fullmatch(r"\d{20}", master.prep_jid())
    master.save_load("j", p1("j"), ["a"])
    master.save_load("j", None, minions=7)
    master.save_minions("j", None)
    master.save_minions("j", [None, 7, b"x"], syndic_id=1)
    master.returner(p2("j"))
    master.update_endtime("j", None)
    master.event_return([{"tag": "t", "data": {}}])
    master.clean_old_jobs()
