// A producer, a push consumer and a simple consumer of rocketmq-client-nodejs. For each line of standard input, a prefix,
// one message of each kind is sent.
"use strict";

const readline = require("readline");
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require("rocketmq-client-nodejs");
const { TransactionResolution } = require("rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb");

const [endpoints, topic, group] = process.argv.slice(2);
const logger = { info() {}, warn: console.error, error: console.error, debug() {} };
const common = { endpoints, namespace: "", logger, requestTimeout: 5000 };
const text = (message) => message.body.toString().trim();
const tell = (line) => console.log(line);

const producer = new Producer({
  ...common,
  topic,
  checker: {
    async check(message) {
      tell(`asked ${text(message)}`);
      return TransactionResolution.COMMIT;
    },
  },
});
const push = new PushConsumer({
  ...common,
  consumerGroup: `${group}_push`,
  subscriptions: new Map([[topic, "*"]]),
  messageListener: {
    async consume(message) {
      const attempt = message.getDeliveryAttempt();
      tell(`push ${text(message)} ${attempt}`);
      const fails = text(message).endsWith("keyed") && attempt === 1;
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  },
});
const simple = new SimpleConsumer({
  ...common,
  consumerGroup: `${group}_simple`,
  subscriptions: new Map([[topic, "*"]]),
  awaitDuration: 5000,
});

async function receive() {
  for (;;) {
    try {
      for (const message of await simple.receive(16, 20000)) {
        await simple.ack(message);
        tell(`simple ${text(message)} ${message.getDeliveryAttempt()}`);
      }
    } catch (error) {
      tell(`again ${error.name}`);
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

// The client waits for no connection, so what it sends right after a start of the broker fails.
async function send(message, transaction) {
  for (let left = 50; ; left--) {
    try {
      return await producer.send(message, transaction);
    } catch (error) {
      if (!left || error.code !== 14) {
        throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

async function sendAll(prefix) {
  const message = (kind, more) => ({ topic, body: Buffer.from(`${prefix}-${kind}`), ...more });
  await send(message("normal"));
  const properties = new Map([["color", "red"]]);
  await send(message("keyed", { tag: "blue", keys: ["k1", "k2"], properties }));
  await send(message("fifo", { messageGroup: "g" }));
  await send(message("delayed", { deliveryTimestamp: new Date(Date.now() + 900) }));
  for (const end of ["commit", "rollback", "orphan"]) {
    const transaction = producer.beginTransaction();
    await send(message(end), transaction);
    if (end === "commit") {
      await transaction.commit();
    } else if (end === "rollback") {
      await transaction.rollback();
    }
  }
}

async function main() {
  await producer.startup();
  await push.startup();
  await simple.startup();
  receive();
  tell("started");
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await sendAll(line.trim());
    tell(`sent ${line.trim()}`);
  }
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
