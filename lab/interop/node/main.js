// What an unmodified Node program does with a broker: main.js NAMESRV TOPIC. The library has no batches and no consumer in order.
// Prints one JSON object: what became of each send, and what each consumer got.
'use strict';
const { Consumer, Message, Producer } = require('ali-ons');

const MOST_MS = 60000;
const [nameSrv, topic] = process.argv.slice(2);
const logger = { info() {}, debug() {}, warn() {}, error() {}, log() {} };
const common = { nameSrv, httpclient: {}, logger, sendMsgTimeout: MOST_MS }; // a busy machine may take long

async function send() {
  const told = {};
  const producer = new Producer({ ...common, producerGroup: 'node-producers', instanceName: 'node-producers' });
  producer.on('error', error => { throw error; });
  await producer.ready();
  const one = async (tag, body) => {
    const message = new Message(topic, tag, body);
    message.keys = [`key-${body}`];
    told[body] = (await producer.send(message)).sendStatus;
  };
  for (const tag of ['a', 'b', 'c']) await one(tag, `one-${tag}`);
  await Promise.all([0, 1, 2].map(i => one('a', `together-${i}`)));
  await producer.close();
  return told;
}

// What a new group is given: the first so many messages.
async function push(consumerGroup, tags, count) {
  const consumer = new Consumer({
    ...common, consumerGroup, instanceName: consumerGroup, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  let closing = false;
  consumer.on('error', error => {
    // The library may ask for the route of a new group's retry topic before its first heartbeat makes that; it asks again.
    const unknown = error.code === 17 && error.message.includes(`%RETRY%${consumerGroup}`);
    // It closes its connection while it waits for that route, where all messages came first.
    const closed = closing && error.name === 'SocketCloseError';
    if (!(unknown || closed)) throw error;
  });
  const told = [];
  const all = new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${consumerGroup}: only ${JSON.stringify(told)} came`)), MOST_MS);
    consumer.subscribe(topic, tags, async message => {
      told.push({
        body: message.body.toString(), tags: message.tags, keys: message.keys,
        queue_id: message.queueId, queue_offset: message.queueOffset,
      });
      if (told.length === count) {
        clearTimeout(timer);
        resolve();
      }
    });
  });
  await consumer.ready();
  await all;
  closing = true;
  await consumer.close();
  return told;
}

(async () => {
  const told = { sent: await send(), pushed: await push('node-all', '*', 6), tagged: await push('node-some', 'a || c', 5) };
  process.stdout.write(JSON.stringify(told) + '\n', () => process.exit(0));
})().catch(error => {
  console.error(error);
  process.exit(1);
});
