"""The C++ driver of the interoperability tests: Apache's C++ client, as the wheel of rocketmq-client-python carries it,
behind the same commands as the other drivers.

`driver.py serve` reads commands from stdin, words separated by tabs: `ID COMMAND --name value ...` starts one (several
run at the same time), `ID stop` ends it, the end of stdin ends all. Each event is one JSON object per line on stdout.

The library's interface takes and returns bodies as C strings, so texts must not contain NUL.
"""

import base64
import json
import os
import sys
import threading
import traceback
from itertools import count
from pathlib import Path

from rocketmq.client import (
    ConsumeStatus,
    Message,
    Producer,
    PushConsumer,
    TransactionMQProducer,
    TransactionStatus,
)
from rocketmq.ffi import MessageModel

_printing = threading.Lock()
_out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # the library prints on standard output
_instances = count(1)
_STATUS = {0: "SEND_OK", 1: "FLUSH_DISK_TIMEOUT", 2: "FLUSH_SLAVE_TIMEOUT", 3: "SLAVE_NOT_AVAILABLE"}
_TRANSACTION = {status.name.lower(): status for status in TransactionStatus}


def emit(command_id, event, **fields):
    with _printing:
        _out.write(json.dumps({"id": command_id, "event": event, **fields}) + "\n")
        _out.flush()


def text_of(value):
    return None if value is None else value.decode()


def messages_of(options):
    """Return the lines of --file, each with its line end."""
    parts = Path(options["file"]).read_bytes().split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    tags = options["tags"].split(",") if "tags" in options else []
    for number, line in enumerate(lines):
        message = Message(options["topic"])
        message.set_body(line)
        message.set_keys(f"{options.get('keys', 'key')}-{number}")
        message.set_property("line", str(number))
        if tags:
            message.set_tags(tags[number % len(tags)])
        if "delay-level" in options:
            message.set_delay_time_level(int(options["delay-level"]))
        yield number, message


def connect(client, options):
    client.set_namesrv_addr(options["namesrv"])
    if "access-key" in options:
        client.set_session_credentials(options["access-key"], options["secret-key"], "")
    client.start()


def told(result):
    return {"status": _STATUS[result.status], "queue_offset": result.offset, "msg_id": result.msg_id}


def send_lines(command_id, options, stop):
    by_queue = int(options.get("order-by-queue", "0"))
    # The library identifies producers by their groups, one of each per process.
    producer = Producer(f"{options.get('group', 'interop_cpp')}_{next(_instances)}", orderly=by_queue > 0)
    connect(producer, options)
    try:
        for number, message in messages_of(options):
            if options.get("mode") == "oneway":
                producer.send_oneway(message)
                emit(command_id, "sent", line=number)
                continue
            if by_queue:
                result = producer.send_orderly_with_sharding_key(message, str(number % by_queue))
            else:
                result = producer.send_sync(message)
            emit(command_id, "sent", line=number, **told(result))
            message.destroy()
            if stop.wait(int(options.get("pause-ms", "0")) / 1000):
                break
    finally:
        producer.shutdown()


def transaction(command_id, options, stop):
    """Send each line in a transaction: --decide is the outcome of the local transactions, --check what the checks
    return, in turn.
    """
    decisions = options["decide"].split(",")
    answers = options["check"].split(",")

    def check(message):
        number = int(message["line"])
        emit(command_id, "checked", line=number)
        return _TRANSACTION[answers[number % len(answers)]]

    producer = TransactionMQProducer(options["group"], check)
    connect(producer, options)
    try:
        for number, message in messages_of(options):
            local = _TRANSACTION[decisions[number % len(decisions)]]
            result = producer.send_message_in_transaction(message, lambda message, _, local=local: local)
            emit(command_id, "sent", line=number, **told(result))
        emit(command_id, "all_sent")
        stop.wait()
    finally:
        producer.shutdown()


def receive(command_id, options, stop):
    model = MessageModel.BROADCASTING if options.get("mode") == "broadcast" else MessageModel.CLUSTERING
    consumer = PushConsumer(options["group"], orderly=options.get("mode") == "orderly", message_model=model)
    consumer.set_instance_name(f"c{os.getpid()}-{next(_instances)}")
    consumer.set_thread_count(4)

    def arrived(message):
        body = message.body
        emit(
            command_id,
            "message",
            topic=message.topic,
            queue=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.commit_log_offset,
            msg_id=text_of(message["UNIQ_KEY"]),
            tags=text_of(message.tags),
            keys=text_of(message.keys),
            reconsume_times=message.reconsume_times,
            born_ms=message.born_timestamp,
            store_ms=message.store_timestamp,
            properties={"line": text_of(message["line"])},
            body=base64.b64encode(body).decode(),
        )
        refused = "refuse" in options and options["refuse"].encode() in body
        return ConsumeStatus.RECONSUME_LATER if refused else ConsumeStatus.CONSUME_SUCCESS

    consumer.subscribe(options["topic"], arrived, options.get("tags", "*"))
    connect(consumer, options)
    emit(command_id, "started")
    stop.wait()
    consumer.shutdown()


COMMANDS = {"send-lines": send_lines, "transaction": transaction, "receive": receive}


def run(command_id, words, stop):
    try:
        options = {name.removeprefix("--"): value for name, value in zip(words[1::2], words[2::2], strict=True)}
        COMMANDS[words[0]](command_id, options, stop)
        emit(command_id, "done")
    except Exception as error:
        traceback.print_exc()
        emit(command_id, "failed", error=f"{type(error).__name__}: {error}")


def serve():
    emit("", "ready")
    stops = {}
    for line in sys.stdin:
        command_id, *words = line.rstrip("\n").split("\t")
        if words == ["stop"]:
            stops[command_id].set()
        else:
            stops[command_id] = threading.Event()
            threading.Thread(target=run, args=(command_id, words, stops[command_id]), daemon=True).start()
    os._exit(0)


if __name__ == "__main__":
    serve()
