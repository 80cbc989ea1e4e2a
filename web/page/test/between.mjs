// Opens a recording of processes that wait for each other. Started by TestWaitsBetween of cmd/sliver with
//
//	node between.mjs SLIVER CHROMIUM PICTURES|- RECORDING
//
// RECORDING is of testdata/targets/c/kinwaits.c.
import assert from 'node:assert/strict';
import { analyzed, browser, open, picture, ready, settled, shown, sliver, state, until } from './harness.mjs';

const [, , , file] = process.argv.slice(2);
const s = await sliver(['view', file]);
let status = 0;
let page;
try {
  page = await open(s.url, { viewport: { width: 1440, height: 900 } });
  await ready(page);
  await analyzed(page);
  await until(page, () => document.getElementById('panel').textContent.includes('Critical path'));
  // The arrows are between tracks that are shown: all groups are opened.
  const folded = page.locator('#labels li.group button.icon[aria-expanded=false]');
  for (let n = await folded.count(); n > 0; n = await folded.count()) await folded.first().click();
  await page.evaluate(() => {
    document.getElementById('panel').style.height = '80px';
  });
  await settled(page);
  await until(page, () => window.sliver.state.arrows.some((a) => !a.lock));
  const { arrows, status: st } = await state(page);
  const process = new Map(st.threads.map((t) => [t.seq, t.process ?? 0]));
  for (const a of arrows) if (!a.lock) assert.notEqual(process.get(a.from), process.get(a.to), JSON.stringify(a));
  await picture(page, 'between');
  assert.deepEqual(page.problems, []);
  console.log('ok   between');
} catch (e) {
  status = 1;
  console.log(`FAIL between\n${e.stack ?? e}\n${s.said()}\n${page ? await shown(page) : ''}`);
}
await browser.close();
await s.stop();
process.exit(status);
