// Opens a recording with traced calls, and a live one, and looks at the tab. Started by TestPageTraced of cmd/sliver
// with
//
//	node traced.mjs SLIVER CHROMIUM PICTURES|- RECORDING FUNCTION PID LIVE
//
// Some calls of FUNCTION wait for 30 ms, the others take less than a millisecond. RECORDING has them; process PID goes
// on, and its page is looked at while LIVE is recorded.
import assert from 'node:assert/strict';
import { browser, open, picture, ready, settled, sliver, state, until } from './harness.mjs';

const [, , , recording, func, pid, live] = process.argv.slice(2);

// rows are the cells of a table by the titles of its columns.
const rows = (page, name) =>
  page.evaluate((name) => {
    const t = [...document.querySelectorAll('#panel table')].find((t) => t.caption?.textContent === name);
    const heads = [...(t?.tHead?.rows[0]?.cells ?? [])].map((c) => c.textContent.replace(/ [▼▲]$/, ''));
    return [...(t?.tBodies[0]?.rows ?? [])].map((r) => Object.fromEntries([...r.cells].map((c, i) => [heads[i], c.textContent])));
  }, name);
const ms = (s) => Number.parseFloat(s) * { s: 1000, ms: 1, µs: 0.001, ns: 1e-6 }[/[a-zµ]+$/.exec(s)[0]];

const check = async (page, name) => {
  const panel = page.locator('#panel');
  // The first screen says what the slow call did.
  const line = panel.getByRole('list', { name: 'What is slow and why' }).getByRole('listitem').first();
  await until(page, (f) => document.querySelector('#panel .findings li')?.textContent.includes(f), func);
  const found = await line.innerText();
  assert.match(found, /the slowest took \d+(\.\d+)? ?m?s/, found);
  await picture(page, `traced-${name}-first`);
  await line.getByRole('button').click();
  await until(page, () => window.sliver.state.tab === 'traced');
  const [f] = await rows(page, 'Traced functions');
  assert.match(f.Function, new RegExp(func));
  assert.ok(Number(f.Calls.replaceAll(',', '')) >= 10 && ms(f.p50) < 15 && ms(f.Longest) >= 30, JSON.stringify(f));
  const slow = await rows(page, `Slowest calls of ${func}`);
  assert.ok(slow.length >= 1 && ms(slow[0].Took) >= 30 && slow.some((c) => ms(c.Waited) >= 20), JSON.stringify(slow));
  // Where samples are missing, as on a machine without an idle CPU, it is not known what a call did.
  assert.equal(/ in waits/.test(found), /\d/.test(slow[0].Waited), `${found} and ${JSON.stringify(slow[0])}`);
  const bars = await rows(page, `Durations of ${func}`);
  assert.ok(bars.length >= 2, JSON.stringify(bars));
  await picture(page, `traced-${name}`);
  return { f, slow, bars };
};

let status = 0;
const s = await sliver(['view', recording]);
const l = await sliver(['record', '-p', pid, '--trace', func, '--web', '-o', live]);
try {
  const page = await open(s.url, { viewport: { width: 1440, height: 900 } });
  await ready(page);
  await settled(page);
  const { f, slow, bars } = await check(page, 'file');
  // All calls are in one bucket each, but the one that began before and the one that was not over.
  const sum = bars.reduce((n, b) => n + Number(b.Calls.replaceAll(',', '')), 0);
  assert.ok(
    sum <= Number(f.Calls.replaceAll(',', '')) && sum >= Number(f.Calls.replaceAll(',', '')) - 2,
    `${sum} calls in buckets, ${f.Calls} in all`,
  );
  // A call leads to its time.
  await page.getByRole('button', { name: slow[0].Thread, exact: true }).first().click();
  await until(page, () => window.sliver.state.t1 - window.sliver.state.t0 < 1e9);
  const v = await state(page);
  assert.ok(v.t1 - v.t0 >= ms(slow[0].Took) * 1e6, `${v.t0} to ${v.t1}`);
  assert.deepEqual(page.problems, []);
  // The page of a recording in progress has the calls so far.
  const page2 = await open(l.url, { viewport: { width: 1440, height: 900 } });
  await ready(page2);
  await check(page2, 'live');
  assert.deepEqual(page2.problems, []);
  console.log('ok   traced');
} catch (e) {
  status = 1;
  console.log(`FAIL traced\n${e.stack ?? e}`);
}
await browser.close();
await s.stop();
await l.stop();
process.exit(status);
