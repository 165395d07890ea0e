"""send_returns.py MINION_CONFIG_DIR COUNT: send that many returns to the master, as its minion, and print their jids."""

import asyncio
import datetime
import json
import os
import sys

import salt.channel.client
import salt.config


async def send(opts, jids):
    channel = salt.channel.client.AsyncReqChannel.factory(opts)
    # A master's workers answer when the return has been stored.
    limit = asyncio.Semaphore(30)

    async def one(jid):
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
        async with limit:
            await channel.send(load, timeout=60)

    try:
        await asyncio.gather(*(one(jid) for jid in jids))
    finally:
        channel.close()


def main():
    opts = salt.config.minion_config(os.path.join(sys.argv[1], "minion"))
    opts["master_uri"] = f"tcp://127.0.0.1:{opts['master_port']}"
    opts["master_ip"] = "127.0.0.1"
    start = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=10)
    step = datetime.timedelta(microseconds=17)
    jids = [f"{start + n * step:%Y%m%d%H%M%S%f}" for n in range(int(sys.argv[2]))]
    asyncio.run(send(opts, jids))
    print(json.dumps(jids))


main()
