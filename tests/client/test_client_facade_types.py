"""Both facades have every method of the trio classes, with its parameters: for type checkers, editors and `help`."""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import triomq
from triomq import aio, blocking
from triomq.client.consume.group_consumer import GroupConsumer
from triomq.client.facades import tables
from triomq.client.instance.members import ConsumerMember

CONSUMERS = ["LitePullConsumer", "PullConsumer", "PushConsumer", "SimpleConsumer"]
NAMES = ["Admin", *CONSUMERS, "Producer", "TransactionProducer"]
FACADES = [aio, blocking]
OF_THE_MEMBER = {
    name for base in (ConsumerMember, GroupConsumer) for name in vars(base) if name not in ("subscribe", "unsubscribe")
}
NOT_FOR_APPLICATIONS = OF_THE_MEMBER | {
    "check_transaction",
    "client",
    "consumed",
    "offset_illegal",
    "make_known",
    "receive_within",
    "take",
    "wait_settled",
}


def public_methods(core: type) -> list[str]:
    return [
        name
        for name, value in inspect.getmembers(core)
        if not name.startswith("_") and callable(value) and name not in NOT_FOR_APPLICATIONS
    ]


@pytest.mark.parametrize("module", FACADES)
@pytest.mark.parametrize("name", NAMES)
def test_a_facade_has_every_method_with_its_parameters(module: Any, name: str) -> None:
    core, facade = getattr(triomq, name), getattr(module, name)
    for method in public_methods(core):
        assert hasattr(facade, method), f"{module.__name__}.{name} lacks {method}"
        if method in ("receive", "listen", "listen_batch"):
            continue  # these differ: a thread waits with a time limit, and a listener may be of another kind
        assert inspect.signature(getattr(facade, method)) == inspect.signature(getattr(core, method)), method
        assert inspect.getdoc(getattr(facade, method)), method


@pytest.mark.parametrize("module", FACADES)
@pytest.mark.parametrize("name", NAMES)
def test_a_facade_is_constructed_as_the_trio_class_is(module: Any, name: str) -> None:
    core, facade = getattr(triomq, name), getattr(module, name)
    assert inspect.signature(facade.__init__) == inspect.signature(core.__init__)


@pytest.mark.parametrize("name", NAMES)
def test_editors_show_the_text_of_the_trio_class(name: str) -> None:
    text = _in_one_line(getattr(triomq, name).__doc__)
    assert _in_one_line(getattr(aio, name).__doc__).startswith(text)
    plain = text.replace("`async with", "`with").replace("as async calls", "as calls")
    assert _in_one_line(getattr(blocking, name).__doc__).startswith(plain)


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("module", "base"), [(aio, "Producer"), (blocking, "Producer"), (tables, "ProducerFacade")], ids=str
)
def test_declarations_for_type_checkers_are_those_of_the_trio_class(module: Any, base: str) -> None:
    place = Path(inspect.getfile(getattr(module, base))).read_text()
    declared = _methods(ast.parse(place), base, declared_only=True)
    assert declared
    core = _methods(ast.parse(Path(inspect.getfile(triomq.Producer)).read_text()), "Producer", declared_only=False)
    for name, method in declared.items():
        assert isinstance(method, ast.AsyncFunctionDef) == (module is aio), name
        assert ast.unparse(method.args) == ast.unparse(core[name].args), name
        assert ast.unparse(method.returns or method) == ast.unparse(core[name].returns or method), name
        assert _in_one_line(ast.get_docstring(method) or "") == _in_one_line(ast.get_docstring(core[name]) or ""), name


Method = ast.FunctionDef | ast.AsyncFunctionDef


def _methods(tree: ast.Module, cls: str, *, declared_only: bool) -> dict[str, Method]:
    """Return the methods of a class; with `declared_only` those under TYPE_CHECKING."""
    found = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls)
    body = (
        [one for node in found.body if isinstance(node, ast.If) for one in node.body] if declared_only else found.body
    )
    return {node.name: node for node in body if isinstance(node, Method)}


PROGRAM = """
from dataclasses import dataclass

import triomq
from triomq import ConsumeRules, Message, MessageExt, SendResult, aio, blocking
from triomq.aio import NoRoute, TrioMQ
from triomq.blocking import MQClientError, SendStatus, by_hash
from triomq.serializers import Json, Text


def is_lost(error: MQClientError, result: SendResult) -> bool:
    return isinstance(error, NoRoute) or result.status is not SendStatus.SEND_OK or by_hash is None


@dataclass
class Order:
    number: int


def send() -> SendResult:
    with blocking.Producer("orders", name_server="127.0.0.1:9876", retries=3) as producer:
        return producer.send(Message("Orders", b"..."), timeout_seconds=1)


async def main() -> list[SendResult]:
    async with aio.Producer("orders", send_timeout_seconds=1) as producer:
        await producer.send(Message("Orders", b"..."), sharding_key="17")
        return await producer.send_batch([Message("Orders", b"...")])


def consume() -> None:
    with blocking.PushConsumer("billing", rules=ConsumeRules(concurrency=4)) as consumer:
        consumer.subscribe("Orders", "new || paid")
        for message in consumer:
            print(message.body.decode(), consumer.assigned_queues)
    with blocking.Admin(timeout_seconds=1) as admin:
        print(admin.topics(cluster="c")[0].upper())


def bill(message: MessageExt[Order]) -> None:
    print(message.value.number, message.keys)


def count(message: MessageExt[int]) -> None: ...


async def typed() -> None:
    async with triomq.Producer("orders", serializer=Json(Order)) as producer:
        await producer.send_value("Orders", Order(17), keys="order-17")
        answer = (await producer.request_value("Rpc", Order(17), Text())).value.upper()
        await producer.send_batch([producer.message("Orders", Order(18), tags=answer)])
    async with triomq.PushConsumer("billing", serializer=Json(Order)) as consumer:
        consumer.listen(bill)
        async for message in consumer:
            print(message.value.number)
    async with triomq.PushConsumer("billing") as plain:
        async for message_of_bytes in plain:
            print(message_of_bytes.value.decode())
    async with aio.Producer("orders", serializer=Json(Order)) as aio_producer:
        await aio_producer.send_value("Orders", Order(17))
        print((await aio_producer.request_value("Rpc", Order(17), Text())).value.upper())
    async with aio.PushConsumer("billing", serializer=Json(Order)) as aio_consumer:
        aio_consumer.listen(bill)
        print((await aio_consumer.receive()).value.number)


app = TrioMQ("shop", serializer=Json(Order))
trio_app = TrioMQ("shop", serializer=Json(Order), backend="trio")
plain_app: TrioMQ = TrioMQ("shop")


@app.consumer("Orders", "new || paid", group="billing", retries=3, rules=ConsumeRules(concurrency=3), ordered=True)
async def bill_order(value: Order, producer: aio.Producer[Order], app: TrioMQ[Order]) -> None:
    await producer.send_value("Orders", value)


def send_with(producer: aio.Producer[Order], app: TrioMQ[Order]) -> None: ...


async def application() -> None:
    async with app, trio_app, plain_app:
        aio_producer: aio.Producer[Order] = app.producer
        trio_producer: triomq.Producer[Order] = trio_app.producer
        bytes_producer: aio.Producer[bytes] = plain_app.producer
        await bill_order(Order(17), aio_producer, app)
        print(await trio_producer.send_value("Orders", Order(17)), bytes_producer)


def typed_and_blocking() -> None:
    with blocking.LitePullConsumer("report", serializer=Json(Order)) as poller:
        print([message.value.number for message in poller.poll()])
    with blocking.Producer("orders", serializer=Json(Order)) as producer:
        producer.send(producer.message("Orders", Order(17), delay_level=3))
        print(producer.request_value("Rpc", Order(17), Text()).value.upper())
    with blocking.PushConsumer("billing", serializer=Json(Order)) as consumer:
        for message in consumer:
            print(message.value.number)
"""

MISTAKES = {
    'blocking.Producer("orders", name_servr="127.0.0.1:9876")': 'Unexpected keyword argument "name_servr"',
    'aio.Producer("orders", retry=3)': 'Unexpected keyword argument "retry"',
    'blocking.Producer(name_server="127.0.0.1:9876")': 'Missing positional argument "group"',
    'aio.PushConsumer("billing", rules=3)': 'Argument "rules" to "PushConsumer" has incompatible type "int"',
    'blocking.Producer("orders").send(Message("T", b""), timeout=3)': 'Unexpected keyword argument "timeout"',
    'blocking.Producer("orders").send("text")': 'incompatible type "str"; expected "Message"',
    "blocking.Admin().create_topics()": 'has no attribute "create_topics"',
    'triomq.Producer("o", serializer=Json(Order)).message("T", 17)': 'incompatible type "int"; expected "Order"',
    'triomq.Producer("o").message("T", Order(17))': 'incompatible type "Order"; expected "bytes"',
    'triomq.PushConsumer("b", serializer=Json(Order)).listen(count)': 'expected "Callable[[MessageExt[Order]], Any]"',
    'blocking.Producer("o", serializer=Json(Order)).send_value("T", 17)': 'incompatible type "int"; expected "Order"',
    'aio.PushConsumer("b", serializer=Json(Order)).listen(count)': 'expected "Callable[[MessageExt[Order]], Any]"',
    'blocking.Admin().topics(clusters="c")': 'Unexpected keyword argument "clusters"',
    'app.consumer("T", group="g", retires=3)': 'Unexpected keyword argument "retires" for "consumer" of "Router"',
    'app.consumer("T", group="g", ordered="no")': 'Argument "ordered" to "consumer" of "Router" has incompatible type',
    'app.producer.message("T", 17)': 'incompatible type "int"; expected "Order"',
    'plain_app.producer.message("T", Order(17))': 'incompatible type "Order"; expected "bytes"',
    "send_with(trio_app.producer, app)": 'incompatible type "triomq.client.produce.producer.Producer[Order]"',
    "send_with(app.producer, trio_app)": 'expected "TrioMQ[Order, triomq.client.facades.aio.Producer[Order]]"',
}


def check_types(path: Path, program: str) -> str:
    path.write_text(program)
    source = Path(triomq.__file__).resolve().parents[1]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--no-error-summary", str(path)],
        cwd=path.parent,
        env={**os.environ, "MYPYPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not checked.stderr, checked.stderr
    return checked.stdout


def test_a_type_checker_sees_the_parameters_of_the_facades(tmp_path: Path) -> None:
    mistakes = "".join(f"\n{mistake}" for mistake in MISTAKES)
    printed = check_types(tmp_path / "program.py", PROGRAM + mistakes)
    first = PROGRAM.count("\n") + 2
    lines = [line for line in printed.splitlines() if " error: " in line]
    assert [int(line.split(":")[1]) for line in lines] == list(range(first, first + len(MISTAKES))), printed
    for line, expected in zip(lines, MISTAKES.values(), strict=True):
        assert expected in line


# pyright, which most editors use, words its errors differently: what it must find, beside the lines.
OF_PYRIGHT = {
    'aio.Producer("orders", retry=3)': 'No parameter named "retry"',
    'blocking.Producer("orders").send(Message("T", b""), timeout=3)': 'No parameter named "timeout"',
    'blocking.Producer("orders").send("text")': 'cannot be assigned to parameter "message" of type "Message"',
    'aio.Producer("o", serializer=Json(Order)).send_value("T", 17)': '"value" of type "Order"',
    'aio.Producer("o", serializer=Json(Order)).message("T", 17)': '"value" of type "Order"',
    'aio.Producer("o", serializer=Json(Order)).request_value("T", 17, Text())': '"value" of type "Order"',
    'aio.Producer("o").send_value("T", Order(17))': '"value" of type "bytes"',
    'blocking.Producer("o", serializer=Json(Order)).send_value("T", 17)': '"value" of type "Order"',
    'blocking.Producer("o", serializer=Json(Order)).reply_value(MessageExt("T"), 17)': '"value" of type "Order"',
    'blocking.Producer("o").request_value("T", b"", Text()).value.number': 'attribute "number" for class "str"',
    'app.producer.send_value("T", 17)': '"value" of type "Order"',
    'aio.PushConsumer("b", serializer=Json(Order)).listen(count)': '"MessageExt[Order]" is not assignable',
}


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright runs in Node.js")
def test_pyright_sees_what_mypy_sees(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + "".join(f"\n{mistake}" for mistake in OF_PYRIGHT))
    source = Path(triomq.__file__).resolve().parents[1]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(source)]}))
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = json.loads(checked.stdout)["generalDiagnostics"]
    errors: dict[int, str] = {}
    for one in found:
        line = one["range"]["start"]["line"] + 1
        errors[line] = errors.get(line, "") + one["message"]
    first = PROGRAM.count("\n") + 2
    assert sorted(errors) == list(range(first, first + len(OF_PYRIGHT))), errors
    for line, expected in enumerate(OF_PYRIGHT.values(), first):
        assert expected in errors[line]
