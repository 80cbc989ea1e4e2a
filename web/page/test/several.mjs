// Watches a program live that starts and ends processes while the page is open. Started by TestPageSeveral of
// cmd/sliver with
//
//	node several.mjs SLIVER CHROMIUM PICTURES|- RECORDING PID
//
// PID starts a process that runs child_work, a worker, for each SIGUSR1, and ends its oldest one for SIGUSR2.
// A worker starts a thread for SIGUSR1.
import assert from 'node:assert/strict';
import { analyzed, browser, open, picture, settled, shown, sliver, state, tab, until } from './harness.mjs';

const [, , , file, pid] = process.argv.slice(2);
const parent = Number(pid);

const s = await sliver(['record', '-p', pid, '--children', '-i', '5ms', '--max-overhead', '0', '--web', '-o', file]);
let status = 0;
let page;
try {
  page = await open(s.url, { viewport: { width: 1440, height: 900 } });
  await page.evaluate(() => {
    window.sameDocument = true;
  });
  const groups = (n) => until(page, (n) => window.sliver?.state.groups.length === n, n);
  const came = (n) => until(page, (n) => window.sliver.state.groups.some((g) => g.process === n), n);
  const group = async (n) => (await state(page)).groups.find((g) => g.process === n);
  const names = new Map(); // of groups, by process: program and PID
  const name = async (n) => {
    if (!names.has(n)) names.set(n, /^\S+ \(\d+\)/.exec((await group(n)).title)[0]);
    return names.get(n);
  };
  const label = async (n) => page.locator('#labels li.group').filter({ hasText: await name(n) });
  const panel = page.locator('#panel');

  // The process that is there, in a group of its own.
  await groups(1);
  assert.match((await state(page)).groups[0].title, new RegExp(`\\(${pid}\\)$`));

  // Processes that come later, each with its thread and its calls.
  process.kill(parent, 'SIGUSR1');
  await came(1);
  process.kill(parent, 'SIGUSR1');
  await came(2);
  await groups(3);
  const ids = (await state(page)).groups.map((g) => g.process);
  assert.deepEqual(ids, [0, 1, 2]);
  await until(page, () => window.sliver.state.status.threads.length === 3);
  const threads = (await state(page)).status.threads.map((t) => t.process ?? 0);
  assert.deepEqual(threads, ids);
  await until(page, () => window.sliver.named().includes('child_work'));

  // The panel has all processes, rolling.
  await until(page, () => document.getElementById('panel').textContent.includes('3 processes'));
  await analyzed(page);
  const rows = panel.getByRole('region', { name: 'Processes' });
  await rows.getByRole('button', { name: await name(1) }).waitFor();
  await rows.getByRole('button', { name: await name(2) }).waitFor();
  assert.match(await rows.innerText(), /\d ms|\d s/);
  await panel.getByRole('button', { name: 'child_work' }).first().waitFor();
  await picture(page, 'several-live');

  // A group folds, and opens again.
  const turn = async (n) => (await label(n)).locator('button.icon').click();
  const second = (await group(2)).seqs[0];
  await turn(2);
  await until(page, (seq) => !window.sliver.state.tracks.some((t) => t.seq === seq), second);
  await turn(2);
  await until(page, (seq) => window.sliver.state.tracks.some((t) => t.seq === seq), second);

  // A process that is chosen is analyzed alone, also with a thread that it starts then.
  await (await label(2)).locator('button.name').click();
  await until(page, (n) => document.getElementById('panel').textContent.includes(`${n}, one of 3 processes`), await name(2));
  assert.equal(await panel.getByRole('region', { name: 'Processes' }).count(), 0);
  process.kill(Number(/\d+/.exec(await name(2))[0]), 'SIGUSR1');
  await until(page, () => window.sliver.state.groups.find((g) => g.process === 2).seqs.length === 2);
  await until(page, () => document.getElementById('panel').textContent.includes('· workers, workers'));
  assert.equal(await (await label(2)).locator('button.name').getAttribute('aria-pressed'), 'true');
  const want = await page.evaluate(() => {
    const { seqs } = window.sliver.state.groups.find((g) => g.process === 2);
    return window.sliver.ask('analysis', { last: 10e9, threads: seqs });
  });
  assert.deepEqual(want.threads.map((t) => t.seq).sort(), (await group(2)).seqs.sort());
  await (await label(2)).locator('button.name').click();
  await until(page, () => document.getElementById('panel').textContent.includes('3 processes'));

  // A process that ends stays, behind those that run.
  process.kill(parent, 'SIGUSR2');
  await until(page, () => window.sliver.state.groups.some((g) => g.process === 1 && g.title.endsWith('ended')));
  await until(page, () => window.sliver.state.groups.at(-1).process === 1);
  const first = (await group(1)).seqs[0];
  const dead = (await state(page)).status.threads.find((t) => t.seq === first);
  assert.ok(dead.ended && dead.cpu > 0, JSON.stringify(dead));

  // While the reader looks at one time, a process that comes moves nothing.
  await page.keyboard.press('Space');
  await until(page, () => !window.sliver.state.follow);
  await settled(page);
  const before = (await state(page)).groups.map((g) => [g.title, g.y]);
  process.kill(parent, 'SIGUSR1');
  await came(3);
  assert.deepEqual(
    (await state(page)).groups.slice(0, 3).map((g) => [g.title, g.y]),
    before,
  );
  await picture(page, 'several-frozen');

  // All are there when the recording has ended; the analysis is of the whole.
  await page.getByRole('button', { name: 'Stop', exact: true }).click();
  await until(page, () => window.sliver.state.status.done);
  await groups(4);
  await page.getByRole('button', { name: 'All', exact: true }).first().click();
  await tab(page, 'Overview');
  await until(page, () => /Whole recording: .*4 processes/.test(document.getElementById('panel').textContent));
  await analyzed(page);
  await panel
    .getByRole('region', { name: 'Processes' })
    .getByText(await name(3))
    .waitFor();
  await until(page, () => window.sliver.state.processSums.length === 4);
  await picture(page, 'several-end');
  assert.equal(await page.evaluate(() => window.sameDocument), true, 'the page was loaded again');
  assert.deepEqual(page.problems, []);
  console.log('ok   several');
} catch (e) {
  status = 1;
  console.log(`FAIL several\n${e.stack ?? e}\n${s.said()}\n${page ? await shown(page) : ''}`);
}
await browser.close();
await s.stop();
process.exit(status);
