// What an unmodified Node program does with a gRPC proxy: main.js PROXY TOPIC, for the topics and groups TOPIC-normal and so on.
// Prints one JSON object: the ids of what was sent, and what each consumer got.
'use strict';
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const MOST_MS = 60000;
const [endpoints, prefix] = process.argv.slice(2);
const logger = { info() {}, debug() {}, warn() {}, error() {} };
const common = { endpoints, namespace: '', logger, sslEnabled: false };

const newMessage = (kind, body, more = {}) => ({ topic: `${prefix}-${kind}`, body: Buffer.from(body), ...more });
const viewed = message => ({
  body: message.body.toString(), tag: message.tag, keys: message.keys, attempt: message.deliveryAttempt, id: message.messageId,
});

// The ids by bodies.
async function send(producer) {
  const told = {};
  const one = async message => { told[message.body.toString()] = (await producer.send(message)).messageId; };
  for (let i = 0; i < 9; i++) await one(newMessage('normal', `m-${i}`, { tag: 'abc'[i % 3], keys: [`key-${i}`, 'every'] }));
  for (let i = 0; i < 20; i++) {
    const messageGroup = 'xy'[i % 2];
    await one(newMessage('fifo', `${messageGroup}-${String(i).padStart(2, '0')}`, { messageGroup }));
  }
  return told;
}

// Leaves one transaction open, which the broker asks for.
async function transact() {
  const producer = new Producer({ ...common, checker: { async check() { return TransactionResolution.COMMIT; } } });
  await producer.startup();
  for (const body of ['commit', 'rollback', 'checked']) {
    const transaction = producer.beginTransaction();
    await producer.send(newMessage('transaction', body), transaction);
    if (body !== 'checked') await transaction[body]();
  }
}

// Acks all messages. The first comes again, since it is made visible instead.
async function receive(count) {
  const consumer = new SimpleConsumer({
    ...common, consumerGroup: `${prefix}-simple`, subscriptions: new Map([[`${prefix}-normal`, '*']]), awaitDuration: 5000,
  });
  await consumer.startup();
  const told = [];
  for (const deadline = Date.now() + MOST_MS; told.length < count;) {
    const got = await consumer.receive(16, 30000);
    if (got.length === 0 && Date.now() > deadline) throw new Error(`only ${JSON.stringify(told)} came`);
    for (const message of got) {
      told.push(viewed(message));
      if (told.length === 1) await consumer.changeInvisibleDuration(message, 1000);
      else await consumer.ack(message);
    }
  }
  await consumer.shutdown();
  return told;
}

// What a group is given: the first so many messages, in the order in which they come.
async function push(kind, tags, count, began = async () => {}) {
  const told = [];
  let resolve;
  const all = new Promise((done, reject) => {
    resolve = done;
    setTimeout(() => reject(new Error(`${kind}: only ${JSON.stringify(told)} came`)), MOST_MS).unref();
  });
  const consumer = new PushConsumer({
    ...common, consumerGroup: `${prefix}-${kind}`, subscriptions: new Map([[`${prefix}-${kind}`, new FilterExpression(tags)]]),
    messageListener: {
      async consume(message) {
        told.push(viewed(message));
        if (told.length === count) resolve();
        return ConsumeResult.SUCCESS;
      },
    },
  });
  await consumer.startup();
  await began();
  await all;
  return told;
}

// How long after its time a message came, in milliseconds.
async function delay(producer) {
  let due;
  await push('delay', '*', 1, async () => {
    due = Date.now() + 2000;
    await producer.send(newMessage('delay', 'later', { deliveryTimestamp: new Date(due) }));
  });
  return Date.now() - due;
}

(async () => {
  await transact();
  const producer = new Producer(common); // without topics: 1.0.8 may wait for ever for those that it is given
  await producer.startup();
  const told = {
    sent: await send(producer),
    received: await receive(10),
    pushed: await push('normal', 'a || c', 6),
    ordered: await push('fifo', '*', 20),
    late_ms: await delay(producer),
    transaction: await push('transaction', '*', 2),
  };
  process.stdout.write(JSON.stringify(told) + '\n', () => process.exit(0));
})().catch(error => {
  console.error(error);
  process.exit(1);
});
