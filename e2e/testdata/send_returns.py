"""send_returns.py MINION_CONFIG_DIR COUNT: send so many returns to the master, as its minion, and print their jids."""

import concurrent.futures
import datetime
import json
import os
import sys

import salt.channel.client
import salt.config

# More than the master has workers, so that all of them are busy.
THREADS = 10


def send(opts, jids):
    channel = salt.channel.client.ReqChannel.factory(opts)
    try:
        for jid in jids:
            load = {
                "cmd": "_return",
                "id": opts["id"],
                "jid": jid,
                "fun": "test.echo",
                "fun_args": [jid],
                "return": jid,
                "retcode": 0,
                "success": True,
            }
            # The master's worker answers when the return has been stored.
            channel.send(load, timeout=60)
    finally:
        channel.close()


def main():
    opts = salt.config.minion_config(os.path.join(sys.argv[1], "minion"))
    opts["master_uri"] = f"tcp://127.0.0.1:{opts['master_port']}"
    opts["master_ip"] = "127.0.0.1"
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=10)
    step = datetime.timedelta(microseconds=17)
    jids = [f"{start + n * step:%Y%m%d%H%M%S%f}" for n in range(int(sys.argv[2]))]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        parts = [threads.submit(send, dict(opts), jids[n::THREADS]) for n in range(THREADS)]
        for part in parts:
            part.result()
    print(json.dumps(jids))


if __name__ == "__main__":
    main()
