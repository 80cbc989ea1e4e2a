// Compares eight screens with sketches of them, for page.mjs. A sketch has the boxes of the parts of the page
// and the mean colors of the cells of a grid: both hold on machines with other fonts, and fail if a part is
// missing, moved, or has another color. SLIVER_UPDATE=1 rewrites the sketches.
import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { analyzed, aPhone, browser, item, open, phone, picture, ready, scheme, scroll, serve, settled, tab, until } from './harness.mjs';

const folder = join(import.meta.dirname, 'screens');
const parts = ['#bar', '#minimap', '#corner', '#axis', '#calls', '#labels', '#tasks', '#lanes', '#side', '#panel > .head', '#panel-body'];
const [columns, rows] = [36, 24];
const far = 44; // distance of two colors (RGB, 0 to 255) from which a cell counts as another one
const some = 0.06; // share of cells that may be: text is where other fonts put it
const middle = 9; // mean distance of all cells
const near = 14; // px that an edge of a part may be elsewhere
const wide = 1440;

// sketch describes what the page looks like.
async function sketch(page) {
  const { width, height } = page.viewportSize();
  const boxes = {};
  for (const p of parts) {
    const b = await page.locator(p).first().boundingBox();
    // Of the tracks the part in the window counts.
    boxes[p] = b && b.y < height ? [b.x, b.y, b.x + b.width, Math.min(b.y + b.height, height)].map(Math.round) : null;
  }
  const png = (await page.screenshot()).toString('base64');
  const blank = await browser.newPage();
  const cells = await blank.evaluate(
    async ([src, columns, rows]) => {
      const img = new Image();
      img.src = src;
      await img.decode();
      const c = new OffscreenCanvas(img.width, img.height);
      const g = c.getContext('2d');
      g.drawImage(img, 0, 0);
      const out = [];
      for (let r = 0; r < rows; r++) {
        for (let k = 0; k < columns; k++) {
          const [x, y] = [Math.floor((k * img.width) / columns), Math.floor((r * img.height) / rows)];
          const [w, h] = [Math.floor(img.width / columns), Math.floor(img.height / rows)];
          const b = g.getImageData(x, y, w, h).data;
          const sum = [0, 0, 0];
          for (let i = 0; i < b.length; i++) if (i % 4 < 3) sum[i % 4] += b[i];
          out.push(
            sum
              .map((v) =>
                Math.round(v / (b.length / 4))
                  .toString(16)
                  .padStart(2, '0'),
              )
              .join(''),
          );
        }
      }
      return out;
    },
    [`data:image/png;base64,${png}`, columns, rows],
  );
  await blank.close();
  return { width, height, boxes, cells };
}

// differences lists how a sketch differs from the one wanted.
function differences(got, want) {
  const out = [];
  for (const [p, box] of Object.entries(want.boxes)) {
    const is = got.boxes[p] ?? null;
    const same = is && box ? is.every((v, i) => Math.abs(v - box[i]) <= near) : is === box;
    if (!same) out.push(`${p} is at ${JSON.stringify(is)}, was at ${JSON.stringify(box)}`);
  }
  const rgb = (s) => [0, 2, 4].map((i) => parseInt(s.slice(i, i + 2), 16));
  const apart = want.cells.map((c, i) => Math.hypot(...rgb(c).map((v, k) => v - rgb(got.cells[i])[k])));
  const others = apart.filter((d) => d > far).length;
  const mean = apart.reduce((a, b) => a + b, 0) / apart.length;
  if (others > some * apart.length || mean > middle) {
    const worst = apart.indexOf(Math.max(...apart));
    const place = `column ${worst % columns}, row ${Math.floor(worst / columns)}: ${got.cells[worst]}, was ${want.cells[worst]}`;
    out.push(`${others} of ${apart.length} cells have another color, ${mean.toFixed(1)} apart in the mean; most at ${place}`);
  }
  return out;
}

// screens are the compared ones: the server's arguments, options of the page, and actions on it.
const screens = {
  overview: { args: ['-threads', '8', '-samples', '3000'] },
  dark: { args: ['-threads', '8', '-samples', '3000'], how: { colorScheme: 'dark' } },
  call: {
    args: ['-threads', '8', '-samples', '3000'],
    async act(page) {
      const it = await item(page, '', 20);
      await page.mouse.click(it.x, it.y);
      await page.locator('#side').getByText('Median', { exact: true }).waitFor();
      await page.mouse.move(2, 2);
    },
  },
  flame: {
    args: ['-threads', '8', '-samples', '3000'],
    async act(page) {
      await tab(page, 'Flame graph');
      await page.locator('#panel .flame canvas').first().waitFor();
    },
  },
  functions: {
    args: ['-threads', '8', '-samples', '3000'],
    async act(page) {
      await tab(page, 'Functions');
      await page.locator('#panel tbody tr').first().waitFor();
    },
  },
  locks: {
    args: ['-threads', '8', '-samples', '3000'],
    async act(page) {
      await tab(page, 'Locks');
      await page.locator('#panel-body table').first().waitFor();
      await page.evaluate(() => {
        document.getElementById('panel').style.height = '30%';
      });
      await until(page, () => window.sliver.state.lanesFine);
      await scroll(page, 1e6);
    },
  },
  goroutines: {
    args: ['-threads', '4', '-samples', '3000', '-tasks', '40'],
    async act(page) {
      await until(page, () => window.sliver.state.tasks.count > 0);
      if (!(await page.evaluate(() => window.sliver.state.tasks.open))) await page.locator('#tasks .group .link').first().click();
      await until(page, () => window.sliver.state.tasks.open && window.sliver.state.tasks.fine);
      await page.evaluate(() => {
        const s = document.getElementById('tracks');
        s.scrollTop += document.querySelector('#tasks .group').getBoundingClientRect().top - s.getBoundingClientRect().top;
      });
      await until(page, () => window.sliver.state.tasks.fine);
    },
  },
  phone: { args: ['-threads', '8', '-samples', '3000'], how: aPhone },
};

export function cases(test, long) {
  if (phone || scheme !== 'light') return; // the screens have forms of their own
  for (const [name, { args, how, act }] of Object.entries(screens)) {
    (name === 'overview' ? test : long)(`the screen ${name} looks as sketched`, async () => {
      const s = await serve(...args);
      const page = await open(s.url, { viewport: { width: wide, height: 900 }, ...how });
      await ready(page);
      await analyzed(page);
      await act?.(page);
      await analyzed(page);
      await settled(page);
      await until(page, () => window.sliver.state.whole);
      const got = await sketch(page);
      await picture(page, `screen-${name}`);
      const file = join(folder, `${name}.json`);
      if (process.env.SLIVER_UPDATE) await writeFile(file, `${JSON.stringify(got)}\n`);
      const want = JSON.parse(await readFile(file, 'utf8'));
      assert.deepEqual(differences(got, want), []);
      // The comparison is worth something: it finds tracks that are not drawn, and a part that is gone.
      await page.evaluate(() => {
        document.getElementById('calls').style.visibility = 'hidden';
      });
      assert.notDeepEqual(differences(await sketch(page), want), [], 'empty tracks were not found');
      await page.evaluate(() => {
        document.getElementById('calls').style.visibility = '';
        document.getElementById('panel').style.display = 'none';
      });
      assert.notDeepEqual(differences(await sketch(page), want), [], 'a missing panel was not found');
      assert.deepEqual(page.problems, []);
      await s.stop();
    });
  }
}
