// duty.js BURN_US REST_US SECONDS: works and rests in turns; the last line is its own CPU account
// (of the process: its other threads have nothing to do):
//
//	truth burn NS rest NS write 0 total NS elapsed NS
const cell = new Int32Array(new SharedArrayBuffer(4));
const spent = { burn: 0, rest: 0 };
let sink = 0;

function cpu() {
  const u = process.cpuUsage();
  return (u.user + u.system) * 1000;
}

function burn(ns) {
  const begin = cpu();
  let now = begin;
  while ((now = cpu()) < begin + ns) for (let i = 0; i < 5000; i++) sink += i;
  spent.burn += now - begin;
}

function rest(ms) {
  const begin = cpu();
  Atomics.wait(cell, 0, 0, ms);
  spent.rest += cpu() - begin;
}

const burnNs = process.argv[2] * 1000, restMs = process.argv[3] / 1000, seconds = +process.argv[4];
for (let end = Date.now() + 500; Date.now() < end; ) burn(1e6); // until it is compiled
spent.burn = 0;
console.log("ready");
const first = process.hrtime.bigint(), total = cpu();
while (Number(process.hrtime.bigint() - first) < seconds * 1e9) {
  burn(burnNs);
  rest(restMs);
}
console.log(`truth burn ${spent.burn} rest ${spent.rest} write 0 total ${cpu() - total} elapsed ${process.hrtime.bigint() - first}`);
