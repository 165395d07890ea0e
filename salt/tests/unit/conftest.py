"""
A Saltern that does as it is told: for what the real one does not do when it is asked nicely.
"""

import contextlib
import importlib.util
import socket
import threading

import msgpack
import pytest

from tests.conftest import RETURNERS


class FakeSaltern:
    """
    Speaks MessagePack-RPC on a Unix socket. ``answers[method]`` is a result, an exception
    ``Refusal``, bytes to send as they are, or a function of the parameters that gives one of these;
    None for ``CLOSE`` and ``HANG``. Requests are noted in ``asked``.
    """

    CLOSE, HANG = object(), object()

    def __init__(self, path):
        self.path = path
        self.asked = []
        self.answers = {
            "hello": {"protocol": 1, "version": "0", "max_payload": 1 << 16, "namespace": ""},
            "save_return": "stored",
            "get_load": None,
        }
        self.connections = 0
        self.open = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(64)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.listener.accept()[0]
                self.connections += 1
                self.open.append(connection)
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, unicode_errors="surrogatepass")
        with contextlib.suppress(OSError):
            while data := connection.recv(1 << 16):
                unpacker.feed(data)
                for kind, number, method, params in unpacker:
                    assert kind == 0
                    self.asked.append((method, params))
                    if not self.answer(connection, number, self.answers.get(method, True), params):
                        return
        connection.close()

    def answer(self, connection, number, answer, params):
        if callable(answer):
            answer = answer(params)
        if answer is self.CLOSE:
            connection.close()
            return False
        if answer is self.HANG:
            return True
        if isinstance(answer, Refusal):
            answer = msgpack.packb([1, number, [answer.name, answer.message], None])
        elif not isinstance(answer, bytes):
            answer = msgpack.packb([1, number, None, answer])
        connection.sendall(answer)
        return True

    def methods(self):
        return [method for method, _ in self.asked if method != "hello"]

    def last(self, method):
        return [params for asked, params in self.asked if asked == method][-1]

    def close_idle(self):
        """
        Close all connections, as the real one does with those that are idle.
        """
        while self.open:
            with contextlib.suppress(OSError):
                self.open.pop().shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        self.close_idle()


class Refusal:
    def __init__(self, name, message="because"):
        self.name = name
        self.message = message


@pytest.fixture
def fake(short_dir):
    fake = FakeSaltern(f"{short_dir}/fake.sock")
    yield fake
    fake.close()


def load_module():
    """
    The returner as a module, without Salt's loader.
    """
    spec = importlib.util.spec_from_file_location("saltern_alone", RETURNERS / "saltern.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def module(short_dir, fake):
    """
    The module with the options of a master at the fake Saltern.
    """
    module = load_module()
    module.__opts__ = {
        "__role": "master",
        "id": "m1",
        "saltern": {
            "address": f"unix:{fake.path}",
            "spool_dir": f"{short_dir}/spool",
            "timeout": 5,
        },
    }
    return module
