// Makes the picture of the README: a live view of a made-up program.
//
//	go build -o /tmp/synthserve ./web/internal/synthserve
//	node web/page/test/picture.mjs /tmp/synthserve "$(command -v chromium)" docs/live.png [dark]
import { chromium } from 'playwright-core';
import { spawn } from 'node:child_process';

const [, , program, executablePath, out, scheme = 'light'] = process.argv;
const p = spawn(program, ['-live', '-threads', '9', '-interval', '1ms'], { stdio: ['pipe', 'pipe', 'inherit'] });
const url = await new Promise((ok) => p.stdout.once('data', (b) => ok(String(b).trim())));
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const page = await browser.newPage({ viewport: { width: 1280, height: 720 }, deviceScaleFactor: 2, colorScheme: scheme });
await page.goto(url);
await page.waitForFunction(() => window.sliver?.state.edge - window.sliver?.state.from > 6e9);
await page.mouse.move(900, 300);
for (let i = 0; i < 7; i++) await page.mouse.wheel(0, -200);
await page.waitForTimeout(1500);
const it = await page.evaluate(() => window.sliver.item('', 60));
if (it) await page.mouse.click(it.x, it.y);
await page.waitForTimeout(700);
await page.screenshot({ path: out });
await browser.close();
p.stdin.end();
