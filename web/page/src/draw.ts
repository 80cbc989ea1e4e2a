// How the tracks look.

import type { Part } from './analysis';
import { theme, type Theme } from './color';
import { clock, cut, dur, forms, syscall, ticks } from './format';
import { drawFlags } from './flags';
import type { FuncView, Row, ThreadData } from './model';
import { GAPS, LOCKS, PAUSES, STATES } from './proto';
import { Thin } from './thin';
import { deeper, firstRow, HEAD, ROW, rowHeight, type ThreadRows, type View } from './track';

const thin = new Thin();
const veil = new Thin();
const veiled = 0.82; // how much of a call's color is covered while its thread waits
const ready = 0.35; // the same while it waits for a CPU: samples of a busy machine find that often

// classes are those of analysis.Class, in the upper 8 bits of a state.
const classes: Part[] = ['other', 'lock', 'io', 'sleep', 'other', 'idle'];

// partOf is the part of a thread's time that a state belongs to; null: the state is not known.
export function partOf(value: number): Part | null {
  switch (value & 0xff) {
    case 1:
      return 'cpu';
    case 2:
      return 'runnable';
    case 3:
      return classes[value >>> 24] ?? 'other';
    case 4:
    case 5:
      return 'io';
    case 6:
    case 7:
      return 'stopped';
  }
  return null;
}

interface Label {
  x: number;
  y: number;
  text: string;
  color: string;
  alpha: number;
}
const labels: Label[] = []; // of the frame that is drawn: they come after the veils
const few = 3; // CSS pixels: thinner items are drawn together with the rest of their row

const font = '11px ui-sans-serif, system-ui, sans-serif';

// steps are the distances that grid lines may have.
export function gridStep(span: number, width: number): number {
  const want = (span / width) * 110;
  const p = 10 ** Math.floor(Math.log10(want));
  for (const m of [1, 2, 5, 10]) if (p * m >= want) return p * m;
  return p * 10;
}

export function drawAxis(g: CanvasRenderingContext2D, v: View): void {
  const c = theme();
  g.fillStyle = c.panel;
  g.fillRect(0, 0, v.width, 24);
  g.fillStyle = c.soft;
  g.font = font;
  g.textBaseline = 'middle';
  const step = gridStep(v.span, v.width);
  const free = drawFlags(g, v);
  for (const t of ticks(v.t0, v.t1, v.model.from(), step)) {
    const x = Math.round(v.x(t));
    g.fillStyle = c.line;
    g.fillRect(x, 20, 1, 4);
    const text = clock(Math.round(t - v.model.from()), step);
    if (!free(x, x + 4 + g.measureText(text).width)) continue;
    g.fillRect(x, 16, 1, 8);
    g.fillStyle = c.soft;
    g.fillText(text, x + 4, 12);
  }
  if (v.range) {
    const a = v.x(v.range.t0);
    const b = v.x(v.range.t1);
    g.fillStyle = c.accent;
    g.fillRect(a, 21, Math.max(1, b - a), 3);
    const text = dur(v.range.t1 - v.range.t0);
    const w = g.measureText(text).width + 10;
    const x = Math.min(Math.max((a + b - w) / 2, 2), v.width - w - 2);
    g.beginPath();
    g.roundRect(x, 2, w, 17, 4);
    g.fill();
    g.fillStyle = c.dark ? '#08131c' : '#ffffff';
    g.fillText(text, x + 5, 11);
  }
}

export function drawTracks(g: CanvasRenderingContext2D, v: View): void {
  const c = theme();
  g.fillStyle = c.bg;
  g.fillRect(0, 0, v.width, v.height);
  g.font = font;
  g.textBaseline = 'middle';
  const step = gridStep(v.span, v.width);
  g.fillStyle = c.faint;
  for (const t of ticks(v.t0, v.t1, v.model.from(), step)) g.fillRect(Math.round(v.x(t)), 0, 1, v.height);
  const edge = v.model.live && v.follow ? Math.min(v.model.edge(), v.t1) : v.model.edge();
  const shown = v.tracks.filter((t) => t.y + t.h > v.top && t.y < v.top + v.height);
  const alpha = (t: ThreadRows): number => (v.chosen.size && !v.chosen.has(t.seq) ? 0.45 : 1);
  thin.begin(v.width);
  labels.length = 0;
  for (const t of shown) {
    const y = t.y - v.top;
    g.fillStyle = c.line;
    g.fillRect(0, Math.round(y + t.h) - 1, v.width, 1);
    g.globalAlpha = alpha(t);
    const d = v.model.data.get(t.seq);
    if (d) drawTrack(g, v, t, d, c, edge);
    g.globalAlpha = 1;
  }
  thin.flush(g);
  if (v.model.colorBy === 'state' && (!v.hits || v.hideHits)) {
    veil.begin(v.width);
    for (const t of shown) drawVeil(g, v, t, c, edge, alpha(t));
    veil.flush(g);
  }
  for (const l of labels) {
    g.globalAlpha = l.alpha;
    g.fillStyle = l.color;
    g.fillText(l.text, l.x, l.y);
  }
  g.globalAlpha = 1;
  for (const t of shown) {
    g.globalAlpha = alpha(t);
    const gaps = v.model.data.get(t.seq)?.lanes.get(GAPS);
    if (gaps) drawGaps(g, v, t, gaps, c);
    g.globalAlpha = 1;
  }
  // Before the recording, and after it.
  shade(g, v, c, -Infinity, v.model.from());
  if (!v.model.live) shade(g, v, c, edge, Infinity);
  else {
    const x = v.x(edge);
    if (x > 0 && x < v.width) {
      g.fillStyle = c.accent;
      g.fillRect(Math.round(x), 0, 1, v.height);
    }
  }
  if (v.range) {
    const a = v.x(v.range.t0);
    const b = v.x(v.range.t1);
    g.globalAlpha = c.dark ? 0.32 : 0.4; // names stay readable, whose colour is dark in both
    g.fillStyle = c.bg;
    g.fillRect(0, 0, a, v.height);
    g.fillRect(b, 0, v.width - b, v.height);
    g.globalAlpha = 1;
    g.fillStyle = c.accent;
    g.fillRect(Math.round(a) - 1, 0, 1, v.height);
    g.fillRect(Math.round(b), 0, 1, v.height);
  }
  const m = v.mark && v.track(v.mark.seq);
  if (m && v.mark) {
    const a = Math.max(v.x(v.mark.t0), 1);
    const b = Math.min(v.x(v.mark.t1), v.width - 1);
    g.strokeStyle = c.hit;
    g.lineWidth = 2;
    g.strokeRect(a, m.y - v.top + 1, Math.max(2, b - a), m.h - 3);
  }
  arrows(g, v, c, shown, edge);
  outline(g, v, c, edge);
}

// drawVeil covers the calls of a track while its thread is off the CPUs.
function drawVeil(g: CanvasRenderingContext2D, v: View, t: ThreadRows, c: Theme, edge: number, alpha: number): void {
  const r = v.model.data.get(t.seq)?.lanes.get(STATES);
  if (!r || t.mode === 'strip') return;
  const y = t.y - v.top + firstRow(t);
  const h = Math.min(t.rows * rowHeight(t.mode), v.height - y);
  if (h <= 0) return;
  veil.band(y, h, alpha);
  const t1 = Math.min(v.t1, edge);
  for (let i = r.at(v.t0); i < r.n && r.start[i]! < t1; i++) {
    const p = partOf(r.value[i]!);
    if (!p || p === 'cpu') continue;
    const a = Math.max(v.x(r.start[i]!), 0);
    const b = Math.min(v.x(Math.min(r.end[i]!, edge)), v.width);
    const dense = r.count[i]! > 1 ? Math.min(1, r.busy[i]! / Math.max(1, r.end[i]! - r.start[i]!)) : 1;
    const cover = dense * (p === 'runnable' ? ready : veiled);
    if (b - a < few) veil.put(a, b, c.veils[p], cover);
    else {
      g.globalAlpha = alpha * cover;
      g.fillStyle = c.veils[p];
      g.fillRect(a, y, b - a, h);
    }
  }
  g.globalAlpha = 1;
}

function shade(g: CanvasRenderingContext2D, v: View, c: Theme, from: number, to: number): void {
  const a = Math.max(0, v.x(from));
  const b = Math.min(v.width, v.x(to));
  if (b > a) {
    g.fillStyle = c.faint;
    g.fillRect(a, 0, b - a, v.height);
  }
}

function drawTrack(g: CanvasRenderingContext2D, v: View, t: ThreadRows, d: ThreadData, c: Theme, edge: number): void {
  const y = t.y - v.top;
  const s = d.lanes.get(STATES);
  if (s)
    strip(g, v, s, y + 3, 8, edge, (i) => {
      const p = partOf(s.value[i]!);
      return p ? c.parts[p] : c.unknown;
    });
  const l = d.lanes.get(LOCKS);
  // A lock whose holder is known; fainter, a word in memory that is waited for.
  if (l) strip(g, v, l, y + 12, 6, edge, (i) => (v.model.locks[l.value[i]!]?.holder ? c.lock : c.park));
  const p = d.lanes.get(PAUSES);
  if (p) {
    thin.band(y + 18, 2, g.globalAlpha);
    const from = p.at(v.t0);
    let until = -1;
    for (let i = from; i < p.n && p.start[i]! < Math.min(v.t1, edge); i++) {
      const a = v.x(p.start[i]!);
      const b = Math.max(v.x(p.end[i]!), a + 1);
      // Merged pauses are drawn the lighter the rarer they are.
      if (b <= until) continue;
      thin.put(a, b, c.pause, p.count[i]! > 1 ? Math.max(0.25, Math.min(1, p.busy[i]! / Math.max(1, p.end[i]! - p.start[i]!))) : 1);
      until = b;
    }
  }
  if (t.mode !== 'strip') {
    const hgt = rowHeight(t.mode);
    const top = firstRow(t);
    const first = t.skip + Math.max(0, Math.floor((v.top - t.y - top) / hgt));
    const last = Math.min(d.rows.length, t.skip + t.rows, t.skip + Math.ceil((v.top + v.height - t.y - top) / hgt));
    for (let k = first; k < last; k++) {
      const r = d.rows[k];
      if (r?.n) calls(g, v, r, y + top + (k - t.skip) * hgt, hgt - 1, t.mode !== 'compact', d, edge, c);
    }
    if (t.mode === 'part') folded(g, v, t, d, c, edge);
  }
}

// folded draws lines for hidden rows: the outer calls by name, and, as a
// thin row, when it goes deeper.
function folded(g: CanvasRenderingContext2D, v: View, t: ThreadRows, d: ThreadData, c: Theme, edge: number): void {
  const y = t.y - v.top;
  const x = Math.max(0, v.x(v.model.from())) + 4; // the time before is shaded
  if (t.skip) {
    g.fillStyle = c.soft;
    const names = d.rows
      .slice(0, t.skip)
      .map((r) => (r.n ? (v.model.funcs[r.lead]?.short ?? '') : ''))
      .filter(Boolean);
    // Of many, the innermost are shown.
    const head = `▸ ${t.skip} outer calls: `;
    let text = '';
    for (let i = names.length - 1; i >= 0; i--) {
      const more = names[i]!.slice(0, 100) + (text && ' › ') + text;
      if (g.measureText(`${head}… › ${more}`).width > v.width - x - 8) {
        text = `… › ${text}`;
        break;
      }
      text = more;
    }
    g.fillText(head + text, x, y + HEAD + ROW / 2);
  }
  const more = deeper(t);
  if (!more) return;
  const at = y + firstRow(t) + t.rows * ROW;
  const r = d.rows[t.skip + t.rows];
  if (r?.n) calls(g, v, r, at, 3, false, d, edge, c);
  g.fillStyle = c.soft;
  g.fillText(`▸ ${more} deeper`, x, at + 11);
}

function drawGaps(g: CanvasRenderingContext2D, v: View, t: ThreadRows, gaps: Row, c: Theme): void {
  const y = t.y - v.top;
  let until = -1;
  for (let i = gaps.at(v.t0 - v.span / 50); i < gaps.n && gaps.start[i]! < v.t1; i++) {
    const a = v.x(gaps.start[i]!);
    const w = v.x(gaps.end[i]!) - a;
    g.fillStyle = c.gap;
    if (w < 3 && !(gaps.value[i]! & 1)) {
      // Too short to be hatched: a tick above the state.
      if (a < until) continue;
      until = a + Math.max(w, 1);
      g.fillRect(a, y, until - a, 3);
    } else if (gaps.value[i]! & 1) {
      g.beginPath();
      g.moveTo(a - 4, y + 1);
      g.lineTo(a + 4, y + 1);
      g.lineTo(a, y + 9);
      g.fill();
      g.fillRect(a - 0.5, y + 2, 1, HEAD - 4);
    } else hatch(g, Math.max(0, a), y + 2, Math.min(w, v.width), HEAD - 5, c);
  }
}

function hatch(g: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, c: Theme): void {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.globalAlpha = c.dark ? 0.3 : 0.5;
  g.fillStyle = c.faint;
  g.fillRect(x, y, w, h);
  g.globalAlpha = c.dark ? 0.6 : 1;
  g.strokeStyle = c.gap;
  g.lineWidth = 1;
  g.beginPath();
  for (let k = x - h; k < x + w; k += 8) {
    g.moveTo(k, y + h);
    g.lineTo(k + h, y);
  }
  g.stroke();
  g.restore();
}

export function stateText(v: { model: { hello: { process: { arch: string } } | null } }, value: number): string {
  const names = [
    'unknown',
    'running',
    'waiting for a CPU',
    'blocked',
    'uninterruptible',
    'page fault',
    'stopped',
    'held by another tracer',
    'dead',
  ];
  const nr = ((value >> 8) & 0xffff) - 1;
  const p = partOf(value);
  const s =
    (value & 0xff) === 3 && p
      ? ((
          { lock: 'waiting for a lock or condition', io: 'waiting for I/O', sleep: 'sleeping', idle: 'idle', other: 'blocked' } as Partial<
            Record<Part, string>
          >
        )[p] ?? 'blocked')
      : (names[value & 0xff] ?? 'unknown');
  return nr >= 0 ? `${s} in ${syscall(nr, v.model.hello?.process.arch ?? 'amd64')}` : s;
}

function strip(g: CanvasRenderingContext2D, v: View, r: Row, y: number, h: number, edge: number, color: (i: number) => string): void {
  let last = '';
  let until = -1;
  const t1 = Math.min(v.t1, edge);
  thin.band(y, h, g.globalAlpha);
  for (let i = r.at(v.t0); i < r.n && r.start[i]! < t1; i++) {
    const a = Math.max(v.x(r.start[i]!), 0);
    const b = Math.min(v.x(Math.min(r.end[i]!, edge)), v.width);
    if (b <= until && b - a < 0.5) continue;
    const f = color(i);
    const w = Math.max(b - a, 0.75);
    until = a + w;
    if (w < few) {
      thin.put(a, until, f, 1);
      continue;
    }
    if (f !== last) g.fillStyle = last = f;
    g.fillRect(a, y, w, h);
  }
}

function fillFor(f: FuncView | undefined, c: Theme): string {
  return f && f.fill >= 0 ? c.fills[f.fill]! : c.unknown;
}

function calls(
  g: CanvasRenderingContext2D,
  v: View,
  r: Row,
  y: number,
  h: number,
  text: boolean,
  d: ThreadData,
  edge: number,
  c: Theme,
): void {
  const funcs = v.model.funcs;
  const scale = v.width / v.span;
  const hits = v.hits;
  const t1 = Math.min(v.t1, edge);
  const alpha = g.globalAlpha;
  let last = '';
  let until = -1;
  const named: number[] = [];
  thin.band(y, h, alpha);
  for (let i = r.at(v.t0); i < r.n; i++) {
    const s = r.start[i]!;
    if (s >= t1) break;
    const open = r.end[i] === Infinity;
    const a = Math.max((s - v.t0) * scale, -2);
    const end = Math.min(r.end[i]!, edge);
    const b = Math.min((end - v.t0) * scale, v.width + 2);
    // Coarser data than pixels, while the finer is on its way in: one for each.
    if (b < until + 0.2 && b - a < 0.4) continue;
    const id = r.value[i]!;
    const lit = hits ? hits[id] === 1 : true;
    if (v.hideHits && hits && lit) continue;
    const f = !hits || v.hideHits ? fillFor(funcs[id], c) : !lit ? c.dim : v.model.colorBy === 'state' ? c.found : fillFor(funcs[id], c);
    let w = b - a;
    const many = r.count[i]! > 1;
    // Merged calls: as dense as the time that they took.
    const dense = many ? 0.35 + 0.65 * Math.min(1, r.busy[i]! / Math.max(1, r.end[i]! - s)) : 1;
    if (w < few && !open) {
      thin.put(a, a + Math.max(w, 0.8), f, dense);
      until = b;
      continue;
    }
    if (f !== last) g.fillStyle = last = f;
    if (many) {
      g.globalAlpha = alpha * dense;
      g.fillRect(a, y, Math.max(w, 0.8), h);
      g.globalAlpha = alpha;
    } else if (open && end > d.last && w > 2) {
      // Confirmed up to the newest event, assumed since.
      const seen = Math.min(Math.max((d.last - v.t0) * scale, a), b);
      g.fillRect(a, y, Math.max(seen - a, 0), h);
      g.globalAlpha = alpha * 0.6;
      g.fillRect(seen, y, b - seen, h);
      g.globalAlpha = alpha;
    } else {
      if (w > 3) w -= 1;
      g.fillRect(a, y, Math.max(w, 0.8), h);
    }
    until = b;
    if (text && w > 22 && !many) named.push(i);
  }
  if (!named.length) return;
  const onFill = v.model.colorBy === 'state' ? c.onState : c.onFill;
  for (const i of named) {
    const a = Math.max((r.start[i]! - v.t0) * scale, 0);
    const b = Math.min((Math.min(r.end[i]!, edge) - v.t0) * scale, v.width);
    const f = funcs[r.value[i]!];
    if (!f || b - a < 20) continue;
    const s = label(g, f, b - a - 8);
    if (!s) continue;
    labels.push({ x: a + 4, y: y + h / 2 + 0.5, text: s, color: hits && !hits[r.value[i]!] && !v.hideHits ? c.dimText : onFill, alpha });
  }
}

// label is as much of a name as fits in w pixels.
export function label(g: CanvasRenderingContext2D, f: FuncView, w: number): string {
  const width = (s: string): number => g.measureText(s).width;
  f.forms ??= forms(f.name).map((s) => [s, width(s)]);
  return cut(f.forms, w, width);
}

const fewArrows = 12;

// bowOf is how far an arrow bows to the left; negative: to the right, near the left edge.
function bowOf(x: number, y0: number, y1: number): number {
  const far = Math.max(7, Math.min(28, Math.abs(y1 - y0) / 3)); // the head takes as much
  return x < far ? -far : far;
}

// arrows lead from a thread that waits to the one that holds the lock.
function arrows(g: CanvasRenderingContext2D, v: View, c: Theme, shown: ThreadRows[], edge: number): void {
  const byTID = new Map<number, ThreadRows>();
  for (const t of v.tracks) byTID.set(v.model.threads.get(t.seq)?.tid ?? -1, t);
  const marked = v.hover?.lane && v.hover.depth === LOCKS ? v.hover : null;
  v.arrows.length = 0;
  let hovered = -1;
  for (const t of shown) {
    const l = v.model.data.get(t.seq)?.lanes.get(LOCKS);
    if (!l) continue;
    for (let i = l.at(v.t0); i < l.n && l.start[i]! < v.t1; i++) {
      const wide = v.x(Math.min(l.end[i]!, edge)) - v.x(l.start[i]!);
      const is = marked !== null && marked.row === l && marked.i === i;
      if ((wide < 14 && !is) || l.count[i]! > 1) continue;
      const lock = v.model.locks[l.value[i]!];
      const holder = lock?.holder ? byTID.get(lock.holder) : undefined;
      if (!lock || !holder || holder === t || v.arrows.length > 400) continue;
      const x = Math.max(v.x(l.start[i]!), 2); // of a wait that began before the view: at its edge
      const y0 = t.y - v.top + 15;
      const down = holder.y > t.y;
      const y1 = holder.y - v.top + (down ? 3 : 18);
      if (is) hovered = v.arrows.length;
      v.arrows.push({ from: t.seq, to: holder.seq, x, y0, y1, bow: bowOf(x, y0, y1), lock: lock.addr });
    }
  }
  const onScreen = new Map(v.tracks.map((t) => [t.seq, t]));
  for (const w of v.between.wakes) {
    const [from, to] = [onScreen.get(w.by), onScreen.get(w.thread)];
    if (!from || !to || w.end < v.t0 || w.end >= v.t1 || v.arrows.length > 400) continue;
    if (!shown.includes(from) && !shown.includes(to)) continue;
    const x = Math.max(v.x(w.end), 2);
    const down = to.y > from.y;
    const y0 = from.y - v.top + (down ? 18 : 3);
    const y1 = to.y - v.top + (down ? 3 : 18);
    v.arrows.push({ from: from.seq, to: to.seq, x, y0, y1, bow: bowOf(x, y0, y1), lock: '' });
  }
  // Many of them would hide the calls: they are fainter, and the one that the
  // pointer is on is drawn strongly.
  const alpha = v.arrows.length > fewArrows ? Math.max(0.22, (0.85 * fewArrows) / v.arrows.length) : 0.85;
  v.arrows.forEach(({ x, y0, y1, bow, lock }, k) => {
    g.strokeStyle = g.fillStyle = lock ? c.lock : c.text;
    g.globalAlpha = k === hovered ? 1 : alpha;
    g.lineWidth = k === hovered ? 2.5 : 1.5;
    g.beginPath();
    g.moveTo(x, y0);
    g.bezierCurveTo(x - bow, y0, x - bow, y1, x, y1);
    g.stroke();
    g.beginPath();
    const back = Math.sign(bow);
    g.moveTo(x + back, y1);
    g.lineTo(x - 6 * back, y1 - 4);
    g.lineTo(x - 5 * back, y1 + 4);
    g.fill();
  });
  g.globalAlpha = 1;
}

function outline(g: CanvasRenderingContext2D, v: View, c: Theme, edge: number): void {
  const box = (seq: number, depth: number, row: Row, i: number, w: number, color: string): void => {
    const t = v.track(seq);
    if (!t || t.mode === 'strip' || depth >= 0xff00) return;
    const a = Math.max(v.x(row.start[i]!), -4);
    const b = Math.min(v.x(Math.min(row.end[i]!, edge)), v.width + 4);
    g.strokeStyle = color;
    g.lineWidth = w;
    if (depth < t.skip || depth >= t.skip + t.rows) return;
    const h = rowHeight(t.mode);
    g.strokeRect(a - w / 2, v.rowY(t, depth) - v.top - w / 2, Math.max(b - a, 2) + w - 1, h - 1 + w);
  };
  const h = v.hover;
  if (h && !h.lane && h.i < h.row.n) box(h.seq, h.depth, h.row, h.i, 1.5, c.text);
  if (v.selected) {
    const n = v.near(v.selected);
    if (n) box(n.seq, n.depth, n.row, n.i, 2.5, c.hit);
  }
}
