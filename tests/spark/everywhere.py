"""Wherever Spark runs: a standalone cluster of two workers, spark-submit with an archived environment, other Pythons, a
declarative pipeline, and a stream with state. Run as a program; it takes minutes, and fetches what it installs:

python tests/spark/everywhere.py [PYTHON ...]

Each PYTHON is another interpreter to try, like python3.13. Each place copies a topic into another and counts both.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from triomq.blocking import Message, Producer, PullConsumer
from triomq.broker.embedded import ProcessCluster

PROJECT = Path(__file__).resolve().parents[2]
DRIVER = PROJECT / "tests" / "spark" / "everywhere_driver.py"
SPARK_HOME = Path(pyspark.__file__).parent
COUNT = 500
SECONDS = 300


def run(command: list[str], **environment: str) -> str:
    """Run a program. Return its output; end this one if it fails."""
    env = {**os.environ, **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-30000:]}")
    return done.stdout


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


@contextmanager
def started(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of Spark."""
    command = [str(SPARK_HOME / "bin" / "spark-class"), *words]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # executors inherit it
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=environment
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


@contextmanager
def standalone() -> Iterator[str]:
    """A standalone cluster with two workers, each a process with one core. Yields its address."""
    port, deploy = free_port(), "org.apache.spark.deploy"
    master = f"spark://127.0.0.1:{port}"
    with started(f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"):
        until_open(port)
        worker = (f"{deploy}.worker.Worker", "--host", "127.0.0.1", "-c", "1", "-m", "1g", "--webui-port", "0")
        with (
            tempfile.TemporaryDirectory() as one,
            tempfile.TemporaryDirectory() as two,
            started(*worker, "-d", one, master),
            started(*worker, "-d", two, master),
        ):
            yield master


def until_open(port: int) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit(f"nothing listens on port {port}")


def submitted(master: str, name_server: str, target: str, *words: str, **environment: str) -> str:
    """Run the driver with spark-submit. Return what it says; end this program if the counts are wrong."""
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master, *words, str(DRIVER)]
    out = run([*submit, name_server, "Everywhere", target], **environment)
    result = next(line for line in out.splitlines() if line.startswith("RESULT "))
    if not result.startswith(f"RESULT {COUNT} {COUNT} "):
        sys.exit(f"{master}: {result}")
    return result


def environment_of(python: str, folder: Path) -> Path:
    """Make an environment with the project and pyarrow, and PySpark from this one. Return its interpreter."""
    run([python, "-m", "venv", "--copies", str(folder)])
    found = folder / "bin" / "python"
    run([str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(PROJECT), "pyarrow>=18"])
    return found


def spark_alone(folder: Path) -> str:
    """Return a directory with only PySpark, for the path of another interpreter."""
    folder.mkdir()
    for name in ("pyspark", "py4j"):
        (folder / name).symlink_to(SPARK_HOME.parent / name)
    return str(folder)


def pipeline(cluster: ProcessCluster, folder: Path) -> str:
    """Run the declarative pipeline of examples/."""
    with Producer("everywhere", name_server=cluster.name_server) as producer:
        orders = [Message("Orders", b'{"amount": %d}' % number, keys=f"k{number}") for number in range(50)]
        producer.send_batch(orders)
    spec = (PROJECT / "examples" / "pipeline" / "declarative" / "spark-pipeline.yml").read_text()
    (folder / "spark-pipeline.yml").write_text(spec.replace("/tmp/orders-pipeline", f"{folder}/storage"))
    (folder / "transformations").symlink_to(PROJECT / "examples" / "pipeline" / "declarative" / "transformations")
    program = str(SPARK_HOME / "bin" / "spark-pipelines")
    here: Mapping[str, str] = {"NAME_SERVER": cluster.name_server, "PYSPARK_PYTHON": sys.executable}
    os.chdir(folder)
    run([program, "run", "--spec", str(folder / "spark-pipeline.yml")], **here)
    os.chdir(PROJECT)
    with PullConsumer("everywhere", name_server=cluster.name_server) as consumer:
        large = sum(consumer.max_offset(queue) for queue in consumer.queues("LargeOrders"))
    if large != 10:
        sys.exit(f"the declarative pipeline has sent {large} large orders, not 10")
    return f"{large} large orders of 50"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="everywhere-") as directory, ProcessCluster() as cluster:
        folder, server = Path(directory), cluster.name_server
        with Producer("everywhere", name_server=server) as producer:
            producer.send_batch([Message("Everywhere", b"%d" % number, keys=f"k{number}") for number in range(COUNT)])
        with standalone() as master:
            print("standalone:", submitted(master, server, "Standalone", PYSPARK_PYTHON=sys.executable), flush=True)
            environment_of(sys.executable, folder / "env")
            archive = folder / "env.tar.gz"
            with tarfile.open(archive, "w:gz") as packed:
                packed.add(folder / "env", ".")
            words = ("--archives", f"{archive}#environment", "--conf", "spark.pyspark.driver.python=" + sys.executable)
            # Spark plans Python data sources at the driver, with the interpreter of the workers.
            (folder / "environment").symlink_to(folder / "env")
            os.chdir(folder)
            shipped = {"PYSPARK_PYTHON": "./environment/bin/python", "PYTHONPATH": ""}
            print("archived environment:", submitted(master, server, "Archived", *words, **shipped), flush=True)
            os.chdir(PROJECT)
        only_spark = spark_alone(folder / "spark")
        for number, python in enumerate(sys.argv[1:]):
            found = str(environment_of(python, folder / f"python{number}"))
            here = {"PYSPARK_PYTHON": found, "PYSPARK_DRIVER_PYTHON": found, "PYTHONPATH": only_spark}
            print(f"{python}:", submitted("local[2]", server, f"Python{number}", **here), flush=True)
        (folder / "pipeline").mkdir()
        print("declarative pipeline:", pipeline(cluster, folder / "pipeline"), flush=True)
        print("state:", run([sys.executable, str(PROJECT / "examples" / "pipeline" / "distinct.py")]).splitlines()[-1])


if __name__ == "__main__":
    main()
