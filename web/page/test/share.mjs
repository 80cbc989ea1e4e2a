// Opens a file that `sliver export -o run.html` wrote, from the disk and without a network, and uses it as
// a reader would. Started by TestShareFile of cmd/sliver with
//
//	node share.mjs - CHROMIUM PICTURES|- FILE
//
// FILE is of testdata/targets/locks/kitchen.c.
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';
import { analyzed, browser, item, open, picture, ready, select, settled, state, tab, until } from './harness.mjs';

const file = process.argv[5];
let failed = 0;
try {
  const page = await open(pathToFileURL(file).href, { viewport: { width: 1440, height: 900 } });
  await page.context().setOffline(true);
  await page.reload();
  await ready(page);
  await analyzed(page);
  const text = () => page.locator('#panel-body').innerText();
  assert.match(await text(), /mutex oven[\s\S]*held mostly by cook-\d/);
  await picture(page, 'share');
  // Calls, their place and their neighbors.
  await settled(page);
  const it = await item(page, '', 12);
  await page.mouse.click(it.x, it.y);
  const side = page.locator('#side');
  await side.locator('h2').filter({ hasText: it.name }).waitFor();
  await side.getByText('Median').waitFor();
  const { sums } = await state(page);
  const parts = sums.parts.reduce((n, p) => n + p.total, 0);
  assert.ok(Math.abs(parts - (sums.end - sums.start)) < 2, `the parts of a call are ${parts} ns, it took ${sums.end - sums.start}`);
  await page.keyboard.press(']');
  await until(page, (t) => window.sliver.state.selected?.start > t, it.start);
  await page.keyboard.press('Escape');
  // A range is added up in the page: its parts make up the whole.
  await tab(page, 'Functions');
  const total = async () => { await analyzed(page); return (await state(page)).total; };
  await page.keyboard.press('0');
  await settled(page);
  const whole = await total();
  await select(page, 0, 0.5);
  const a = await total();
  await page.keyboard.press('Escape');
  await select(page, 0.5, 1);
  const b = await total();
  assert.ok(a > 0 && b > 0 && Math.abs(a + b - whole) < 0.03 * whole, `two halves have ${a} and ${b} ns of CPU time, the whole ${whole}`);
  await tab(page, 'Locks');
  assert.match(await text(), /mutex oven/);
  await page.keyboard.press('Escape');
  await page.getByRole('searchbox', { name: /Search/ }).fill('knead');
  await until(page, () => /calls, /.test(document.querySelector('.search output').innerText));
  await picture(page, 'share-search');
  assert.deepEqual(page.problems, []);
  console.log('ok   the file opens without a network');
} catch (e) {
  failed++;
  console.log('FAIL the file opens without a network\n' + (e.stack ?? e));
}
await browser.close();
process.exit(failed ? 1 : 0);
