'use strict';

// The Node driver of the interoperability tests: the ali-ons client behind the same commands as the other drivers.
//
// `node driver.js serve` reads commands from stdin, words separated by tabs: "ID COMMAND --name value ..." starts one
// (several run side by side), "ID stop" ends it, the end of stdin ends all. Each event is one JSON object a line.

const fs = require('fs');
const readline = require('readline');
const { Consumer, Message, Producer } = require('ali-ons');

const print = process.stdout.write.bind(process.stdout);
const quiet = { debug() {}, info() {}, warn() {}, error: (...words) => console.error(...words) };
const CONSUME_FROM_FIRST_OFFSET = 'CONSUME_FROM_FIRST_OFFSET';
let instances = 0;

function emit(id, event, fields) {
  print(JSON.stringify({ id, event, ...fields }) + '\n');
}

function clientOptions(options) {
  return {
    nameSrv: options.namesrv.split(';'),
    httpclient: { request: () => Promise.reject(new Error('the name server address is given')) },
    accessKeyId: options['access-key'] || 'none',
    accessKeySecret: options['secret-key'] || 'none',
    instanceName: `n${process.pid}-${++instances}`,
    pollNameServerInteval: 1000,
    heartbeatBrokerInterval: 1000,
    persistConsumerOffsetInterval: 500,
    rebalanceInterval: 2000,
    logger: quiet,
  };
}

// The lines of a file, each with its line end: together they are the file again.
function linesOf(path) {
  const all = fs.readFileSync(path);
  const lines = [];
  for (let begin = 0; begin < all.length;) {
    const found = all.indexOf(10, begin);
    const end = found < 0 ? all.length : found + 1;
    lines.push(all.subarray(begin, end));
    begin = end;
  }
  return lines;
}

async function sendLines(id, options) {
  const producer = new Producer({ ...clientOptions(options), producerGroup: options.group || 'interop_producer' });
  await producer.ready();
  const tags = options.tags ? options.tags.split(',') : null;
  let number = 0;
  for (const line of linesOf(options.file)) {
    const message = new Message(options.topic, tags ? tags[number % tags.length] : '', line);
    message.keys = [ `${options.keys || 'key'}-${number}` ];
    message.properties.line = String(number);
    if (options['delay-level']) message.delayTimeLevel = Number(options['delay-level']);
    const result = await producer.send(message);
    emit(id, 'sent', {
      line: number,
      status: result.sendStatus,
      broker: result.messageQueue.brokerName,
      queue: result.messageQueue.queueId,
      queue_offset: Number(result.queueOffset),
      msg_id: result.msgId,
    });
    number++;
    if (options['pause-ms']) await new Promise(resolve => setTimeout(resolve, Number(options['pause-ms'])));
  }
  await producer.close();
}

async function receive(id, options, stopped) {
  const consumer = new Consumer({
    ...clientOptions(options),
    consumerGroup: options.group,
    consumeFromWhere: CONSUME_FROM_FIRST_OFFSET,
    isBroadcast: options.mode === 'broadcast',
    maxReconsumeTimes: Number(options['max-reconsume'] || 16),
  });
  consumer.on('error', error => console.error(error));
  consumer.subscribe(options.topic, options.tags || '*', async message => {
    emit(id, 'message', {
      topic: message.topic,
      queue: message.queueId,
      queue_offset: Number(message.queueOffset),
      msg_id: message.properties.UNIQ_KEY,
      tags: message.tags,
      keys: message.keys,
      reconsume_times: message.reconsumeTimes,
      born_ms: Number(message.bornTimestamp),
      store_ms: Number(message.storeTimestamp),
      properties: message.properties,
      body: Buffer.from(message.body).toString('base64'),
    });
    return options.refuse && message.body.includes(options.refuse) ? Consumer.ACTION_RETRY : undefined;
  });
  await consumer.ready();
  emit(id, 'started', { client_id: consumer.clientId });
  await stopped;
  await consumer.close();
}

const COMMANDS = { 'send-lines': sendLines, receive };
const stops = new Map();

async function run(id, words) {
  const options = {};
  for (let i = 1; i < words.length; i += 2) options[words[i].replace(/^--/, '')] = words[i + 1];
  const stopped = new Promise(resolve => stops.set(id, resolve));
  try {
    await COMMANDS[words[0]](id, options, stopped);
    emit(id, 'done');
  } catch (error) {
    console.error(error);
    emit(id, 'failed', { error: String(error) });
  }
}

console.log = console.info = console.warn = console.error;
process.on('unhandledRejection', error => console.error(error));
const input = readline.createInterface({ input: process.stdin });
input.on('line', line => {
  const [ id, ...words ] = line.split('\t');
  if (words.length === 1 && words[0] === 'stop') stops.get(id)();
  else run(id, words);
});
input.on('close', () => process.exit(0));
emit('', 'ready');
