"""The shape of gunicorn with --preload: a master that has imported the application, and workers that it forks.

    preforked.py <name server> <topic>

Each worker writes one line of JSON. SIGTERM ends the master, which ends the workers. All of them have it blocked and
wait for it: with a handler and `pause`, one that came just before `pause` would be forgotten.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import cache

from triomq.blocking import Message, Producer
from triomq.client.core.errors import MQClientError

NAME_SERVER, TOPIC = sys.argv[1:]
LIMITS = {"request_timeout_seconds": 60.0, "send_timeout_seconds": 60.0}
EAGER = Producer[bytes]("preforked", name_server=NAME_SERVER, **LIMITS).start()


@cache
def producer() -> Producer[bytes]:
    """Return the producer of this worker, which nothing closes."""
    return Producer[bytes]("preforked", name_server=NAME_SERVER, **LIMITS).start()


def work() -> None:
    try:
        EAGER.send(Message(TOPIC, b"eager"))
        said = ""
    except MQClientError as error:
        said = str(error)
    ids = [producer().send(Message(TOPIC, b"lazy")).message_id for _ in range(2)]
    os.write(1, json.dumps({"said": said, "ids": ids}).encode() + b"\n")
    signal.sigwait({signal.SIGTERM})
    sys.exit(0)


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    mine = EAGER.send(Message(TOPIC, b"master")).message_id
    workers = []
    for _ in range(2):
        worker = os.fork()
        if worker == 0:
            work()
        workers.append(worker)
    os.write(1, json.dumps({"said": "", "ids": [mine]}).encode() + b"\n")
    signal.sigwait({signal.SIGTERM})
    for worker in workers:
        os.kill(worker, signal.SIGTERM)
    codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    EAGER.send(Message(TOPIC, b"master"))
    EAGER.close()
    sys.exit(max(codes))


if __name__ == "__main__":
    main()
