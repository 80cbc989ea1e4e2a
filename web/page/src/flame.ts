// A flame graph on a canvas: icicle or flame, plain or differential.

import { fillOf, greyFirst, theme } from './color';
import { el, fill, fit, h } from './dom';
import { count, cut, dur, forms, percent } from './format';
import { depth, type Node, type Weight } from './tree';

const H = 18;

interface Box {
  k: Node;
  x: number;
  w: number;
  d: number;
}

export class Flame {
  readonly box = h('div', { class: 'flame' });
  private canvas = h('canvas', { tabindex: 0, role: 'img' });
  private root: Node | null = null;
  private zoomed: Node | null = null;
  private boxes: Box[] = [];
  private over: Node | null = null;
  private cursor: Node | null = null;
  up = false; // flame instead of icicle
  differs = false;
  byState = true; // colors show the state: see Model.colorBy
  weight: Weight = 'wall';
  match: ((func: number, name: string) => boolean) | null = null;
  onPick = (_: Node): void => {};
  color = (k: Node): number => fillOf(k.name); // number of a function's colour, -1 none

  constructor() {
    this.box.append(this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.canvas.addEventListener('pointermove', (e) => {
      const k = this.at(e);
      this.over = k;
      this.tip(k, e.clientX, e.clientY);
      this.draw();
    });
    this.canvas.addEventListener('pointerleave', () => {
      this.over = null;
      el('tip').hidden = true;
      this.draw();
    });
    this.canvas.addEventListener('click', (e) => {
      const k = this.at(e);
      if (k) this.zoom(k);
    });
    this.canvas.addEventListener('dblclick', (e) => {
      const k = this.at(e);
      if (k && k.func >= 0) this.onPick(k);
    });
    this.canvas.addEventListener('keydown', (e) => this.key(e));
  }

  set(root: Node, label: string): void {
    // A zoom stays where the same path is still there.
    const path: string[] = [];
    for (let p = this.zoomed; p?.parent; p = p.parent) path.unshift(p.name);
    let k: Node | undefined = root;
    for (const n of path) k = k?.kids.find((x) => x.name === n);
    this.root = root;
    this.zoomed = k ?? root;
    this.cursor = null;
    this.canvas.setAttribute(
      'aria-label',
      `${label}. ${count(root.kids.length)} roots, ${this.amount(root.value)} in all. Arrow keys walk through it, Enter zooms.`,
    );
    this.draw();
  }

  zoom(k: Node): void {
    this.zoomed = k;
    this.cursor = k;
    this.draw();
  }

  amount(v: number): string {
    return this.weight === 'samples' ? `${count(v)} samples` : dur(v);
  }

  private key(e: KeyboardEvent): void {
    if (!this.root) return;
    let k = this.cursor ?? this.zoomed ?? this.root;
    const sib = (d: number): Node => {
      const s = k.parent?.kids ?? [k];
      return s[Math.min(s.length - 1, Math.max(0, s.indexOf(k) + d))]!;
    };
    const into = this.up ? 'ArrowUp' : 'ArrowDown';
    const out = this.up ? 'ArrowDown' : 'ArrowUp';
    if (e.key === into) k = k.kids[0] ?? k;
    else if (e.key === out) k = k.parent ?? k;
    else if (e.key === 'ArrowLeft') k = sib(-1);
    else if (e.key === 'ArrowRight') k = sib(1);
    else if (e.key === 'Enter') this.zoomed = k;
    else if (e.key === 'Escape' && this.zoomed !== this.root) this.zoomed = this.root;
    else return;
    e.preventDefault();
    e.stopPropagation();
    this.cursor = k;
    el('say').textContent = this.text(k).join(', ');
    this.draw();
  }

  private text(k: Node): string[] {
    const total = this.root?.value || 1;
    const out = [k.name, `${this.amount(k.value)} (${percent(k.value / total)}), self ${this.amount(k.self)}`];
    if (k.count) out.push(`${count(k.count)} calls`);
    if (this.differs) {
      const d = k.value - k.other;
      const sign = d >= 0 ? '+' : '−';
      const part = k.other ? ` (${sign}${percent(Math.abs(d) / k.other)})` : ', new';
      out.push(`before ${this.amount(k.other)}, ${sign}${this.amount(Math.abs(d))}${part}`);
    }
    return out;
  }

  private tip(k: Node | null, x: number, y: number): void {
    const t = el('tip');
    t.hidden = !k;
    if (!k) return;
    const [name, ...rest] = this.text(k);
    fill(t, h('b', null, name), ...rest.map((s) => h('div', null, s)));
    t.style.left = `${Math.max(4, x + 14 + t.offsetWidth > innerWidth ? x - t.offsetWidth - 10 : x + 14)}px`;
    t.style.top = `${Math.max(4, y + 18 + t.offsetHeight > innerHeight ? y - t.offsetHeight - 10 : y + 18)}px`;
  }

  private at(e: MouseEvent): Node | null {
    const r = this.canvas.getBoundingClientRect();
    const x = e.clientX - r.left;
    const y = e.clientY - r.top;
    const d = Math.floor((this.up ? r.height - y : y) / H);
    for (const b of this.boxes) if (b.d === d && x >= b.x && x < b.x + b.w) return b.k;
    return null;
  }

  draw(): void {
    const root = this.root;
    if (!root || !this.box.isConnected) return;
    const z = this.zoomed ?? root;
    const w = this.box.clientWidth;
    const above: Node[] = [];
    for (let p = z.parent; p; p = p.parent) above.unshift(p);
    const rows = above.length + depth(z);
    const hgt = Math.max(rows * H + 2, H);
    const g = fit(this.canvas, w, hgt);
    const c = theme();
    g.fillStyle = c.bg;
    g.fillRect(0, 0, w, hgt);
    g.font = '11px ui-sans-serif, system-ui, sans-serif';
    g.textBaseline = 'middle';
    this.boxes = [];
    const size = (k: Node): number => (this.differs ? k.size : k.value);
    const paint = (k: Node, x: number, wd: number, d: number, faded: boolean): void => {
      const y = this.up ? hgt - (d + 1) * H : d * H;
      this.boxes.push({ k, x, w: wd, d });
      const lit = this.match ? k.func >= 0 && this.match(k.func, k.name) : true;
      let f: string;
      if (this.differs) f = this.change(k, c.dim, c.more, c.less);
      else if (!lit) f = c.dim;
      else if (this.match && this.byState) f = c.found;
      else {
        const n = k.func < 0 ? -1 : this.color(k);
        f = n < 0 ? (this.byState ? c.fills[greyFirst]! : c.unknown) : c.fills[n]!;
      }
      g.globalAlpha = faded ? 0.5 : 1;
      g.fillStyle = f;
      g.fillRect(x, y, Math.max(wd - (wd > 3 ? 1 : 0), 0.5), H - 1);
      g.globalAlpha = 1;
      if (k === this.over || k === this.cursor) {
        g.strokeStyle = k === this.cursor ? c.hit : c.text;
        g.lineWidth = 2;
        g.strokeRect(x + 1, y + 1, Math.max(1, wd - 3), H - 3);
      }
      if (wd > 26) {
        g.fillStyle =
          this.differs || lit ? (this.differs && f === c.dim ? c.text : this.byState && !this.differs ? c.onState : c.onFill) : c.dimText;
        const width = (s: string): number => g.measureText(s).width;
        const s = cut(
          forms(k.name).map((s) => [s, width(s)]),
          wd - 8,
          width,
        );
        if (s) g.fillText(s, x + 4, y + H / 2);
      }
    };
    for (const [d, k] of above.entries()) paint(k, 0, w, d, true);
    const walk = (k: Node, x: number, wd: number, d: number): void => {
      paint(k, x, wd, d, false);
      const scale = wd / (size(k) || 1);
      let at = x;
      for (const s of k.kids) {
        const sw = size(s) * scale;
        if (sw >= 0.4) walk(s, at, sw, d + 1);
        at += sw;
      }
    };
    walk(z, 0, w, above.length);
  }

  private change(k: Node, same: string, more: string, less: string): string {
    const total = this.root?.value || 1;
    const d = (k.value - k.other) / total;
    if (Math.abs(d) < 0.002) return same;
    const a = Math.min(1, 0.3 + Math.sqrt(Math.abs(d)) * 1.6);
    return mix(same, d > 0 ? more : less, a);
  }
}

function mix(a: string, b: string, t: number): string {
  const p = (s: string, i: number): number => parseInt(s.slice(1 + 2 * i, 3 + 2 * i), 16);
  const v = [0, 1, 2].map((i) => Math.round(p(a, i) + (p(b, i) - p(a, i)) * t));
  return `rgb(${v.join(',')})`;
}
