// Opens a recording with I/O and looks at the tab and at the tracks of files. Started by TestPageIO of cmd/sliver
// with
//
//	node io.mjs SLIVER CHROMIUM PICTURES|- RECORDING FILE FUNCTION
//
// FILE is the path in whose operations the threads spent the most time, with a finding of fsync; FUNCTION called them.
import assert from 'node:assert/strict';
import { browser, canvas, drawn, open, picture, ready, scroll, settled, shown, sliver, state, tab, until } from './harness.mjs';

const [, , , recording, path, func] = process.argv.slice(2);
const name = path.slice(path.lastIndexOf('/') + 1);

const s = await sliver(['view', recording]);
let status = 0;
let page;
try {
  page = await open(s.url, { viewport: { width: 1440, height: 900 } });
  await ready(page);
  await settled(page);
  const panel = page.locator('#panel');
  // The first screen has the finding.
  await panel
    .getByText(/was synced \d+ times/)
    .first()
    .waitFor();
  // The tab has it with what to change, its stack, and the file with its sums.
  await tab(page, 'I/O');
  await panel.getByRole('button', { name: 'fsync' }).first().click();
  await panel.getByRole('heading', { name: 'Called in' }).first().waitFor();
  const said = await panel.locator('tbody').first().innerText();
  assert.match(said, new RegExp(func), `the stack of the finding: ${said}`);
  const row = panel.getByRole('row').filter({ hasText: path }).last();
  const cells = await row.getByRole('cell').allInnerTexts();
  assert.ok(Number(cells[4].replaceAll(',', '')) >= 20, `syncs of the file: ${cells}`);
  await picture(page, 'io-tab');
  // The track of the file: the first of all files, with a name that leads to the tab.
  await until(page, () => window.sliver.state.lanes.some((l) => l.file));
  const lane = (await state(page)).lanes.find((l) => l.file);
  assert.equal(lane.file.path, path);
  assert.ok(lane.file.ops >= 20 && lane.total > 0, JSON.stringify(lane));
  await scroll(page, lane.y - 60);
  await until(page, (n) => window.sliver.state.shown.some((t) => t.kind === 'file' && t.title === n), name);
  // middle puts the mouse on the middle of the chart, once its numbers are there: until then it shows nothing there.
  const middle = async () => {
    for (;;) {
      const { top, lanes } = await state(page);
      const { y, h } = lanes.find((l) => l.file?.path === path);
      const b = await canvas(page);
      const at = [b.x + b.width / 2, b.y + y - top + h / 2];
      await page.mouse.move(at[0], at[1] - 1);
      await page.mouse.move(...at);
      const tip = await page.evaluate(() => document.getElementById('tip').hidden || document.getElementById('tip').innerText);
      if (typeof tip === 'string' && tip.startsWith(`${path}\n`) && tip.includes('threads in its operations')) return at;
      await drawn(page);
    }
  };
  await middle();
  await picture(page, 'io-tracks');
  await tab(page, 'Overview');
  await page.locator('#lanes').getByRole('button', { name, exact: true }).click();
  await until(page, () => window.sliver.state.tab === 'io');
  assert.equal(await panel.getByRole('searchbox', { name: 'Filter files' }).inputValue(), path);
  // A click on the chart does the same.
  await tab(page, 'Overview');
  await page.mouse.click(...(await middle()));
  await until(page, () => window.sliver.state.tab === 'io');
  assert.deepEqual(page.problems, []);
  console.log('ok   io');
} catch (e) {
  status = 1;
  console.log(`FAIL io\n${e.stack ?? e}\n${page ? await shown(page) : ''}`);
}
await browser.close();
await s.stop();
process.exit(status);
