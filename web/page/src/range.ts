// The panel of a selected time range: flame graph, functions, waits, comparison.

import { able } from './able';
import { el, fill, h, put } from './dom';
import { Flame } from './flame';
import { clock, count, dur, percent, syscall } from './format';
import { Func, Tree, WaitRow, Where } from './proto';
import { lockName, lockText } from './side';
import { Timeline } from './timeline';
import { Range } from './track';
import { build, diff, Filter, FuncRow, heavy, Node, sandwich, table, Weight } from './tree';

type Tab = 'flame' | 'functions' | 'waits' | 'compare';
type Order = 'time' | 'heavy' | 'sandwich';

interface Before { label: string; tree: Tree; names: (i: number) => Func | undefined; span: number }

export class RangePanel {
  private box = el('range');
  private body = h('div', { class: 'body' });
  private flame = new Flame();
  private lower = new Flame();
  tab: Tab = 'flame';
  order: Order = 'heavy';
  weight: Weight = 'wall';
  private up = false; // flame instead of icicle
  private byThread = false;
  private share = true;
  private focusText = '';
  private hideText = '';
  private picked = '';
  private before: Before | null = null;
  private tree: Tree | null = null;
  private inTime: Tree | null = null;
  private waits: WaitRow[] | null = null;
  private asked = 0;
  private problem = '';
  root: Node | null = null;
  private sorts: Partial<Record<Tab, { key: string; down: boolean }>> = {};
  private needle = '';
  onFunc = (_: number): void => {};
  onGo = (_: Where): void => {};
  onClose = (): void => {};
  onExport = (_: HTMLButtonElement): void => {};

  constructor(private v: Timeline) {
    for (const f of [this.flame, this.lower]) {
      f.color = (k) => v.model.funcs[k.func]?.fill ?? -1;
      f.onPick = (k) => {
        this.picked = k.name;
        this.order = 'sandwich';
        this.draw();
      };
    }
  }

  get shown(): boolean {
    return !this.box.hidden;
  }

  set match(f: ((func: number, name: string) => boolean) | null) {
    this.flame.match = this.lower.match = f;
    if (this.shown) this.draw();
  }

  restyle(): void {
    this.flame.draw();
    this.lower.draw();
  }

  close(): void {
    this.box.hidden = true;
    this.tree = this.inTime = null;
    this.waits = null;
    this.asked++;
  }

  private args(): Record<string, unknown> {
    const r = this.v.range!;
    const a: Record<string, unknown> = { t0: Math.round(r.t0), t1: Math.round(r.t1) };
    if (this.v.chosen.size) a.threads = [...this.v.chosen];
    else {
      const some = this.v.tracks.map((t) => t.seq).filter((s) => this.idle || !this.resting.includes(s));
      if (some.length < this.v.model.order.length) a.threads = some;
    }
    return a;
  }

  private idle = false; // threads count that a runtime has for itself and that do nothing

  // resting are those: a dozen of them wait all the time, which would be most of a graph. Where there
  // are no others they count.
  private get resting(): number[] {
    const all = this.v.tracks.map((t) => t.seq);
    const rest = this.v.chosen.size ? [] : all.filter((s) => this.v.rests(s));
    return rest.length < all.length ? rest : [];
  }

  // show asks for everything about the range.
  async show(r: Range): Promise<void> {
    const id = ++this.asked;
    const was = this.box.hidden;
    this.box.hidden = false;
    if (was) this.frame();
    void r;
    try {
      const extra = this.byThread ? { by_thread: true } : {};
      const [tree, waits] = await Promise.all([
        this.v.conn.ask<Tree>('tree', { ...this.args(), ...extra }),
        this.v.conn.ask<WaitRow[]>('waits', this.args()),
      ]);
      const inTime = this.order === 'time' ? await this.v.conn.ask<Tree>('tree', { ...this.args(), ...extra, mode: 'time' }) : null;
      if (id !== this.asked) return;
      this.tree = tree;
      this.waits = waits;
      this.inTime = inTime;
      this.problem = '';
    } catch (e) {
      if (id !== this.asked) return;
      this.problem = (e as Error).message;
    }
    this.frame();
  }

  // again asks anew for what could not be had, when there is a connection.
  again(): void {
    if (this.shown && this.problem && this.v.range) void this.show(this.v.range);
  }

  private name = (i: number): Func | undefined => {
    if (i >= 2 ** 31) {
      const t = this.v.model.threads.get(i - 2 ** 31);
      return { name: t ? `${t.name} (${t.tid})` : 'thread' };
    }
    return this.v.model.funcs[i];
  };

  private pattern(s: string): RegExp | null {
    if (!s) return null;
    try {
      return new RegExp(s, 'i');
    } catch {
      return new RegExp(s.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
    }
  }

  private filter(): Filter {
    return { focus: this.pattern(this.focusText), hide: this.pattern(this.hideText) };
  }

  private head: HTMLElement | null = null;

  // frame draws the head with its tabs, and what is below.
  private frame(): void {
    const v = this.v;
    const r = v.range;
    if (!r) return;
    const who = v.chosen.size ? [...v.chosen].map((s) => v.model.threads.get(s)?.name ?? '').join(', ') : 'all threads shown';
    const rest = this.resting.length;
    const idle = rest ? able(h('button', { class: 'small', 'aria-pressed': String(this.idle), onclick: () => {
      this.idle = !this.idle;
      void this.show(v.range!);
    } }, 'Idle threads'), 'Count the idle threads of the runtime too: they wait all the time') : null;
    const tabs: [Tab, string][] = [['flame', 'Flame graph'], ['functions', 'Functions'], ['waits', 'Waits'], ['compare', 'Compare']];
    const tablist = h('div', { role: 'tablist', class: 'tabs', onkeydown: (e: Event) => {
      const k = (e as KeyboardEvent).key;
      if (k !== 'ArrowLeft' && k !== 'ArrowRight') return;
      e.stopPropagation();
      const i = tabs.findIndex((t) => t[0] === this.tab);
      this.tab = tabs[(i + (k === 'ArrowRight' ? 1 : 3)) % 4][0];
      this.frame();
      this.box.querySelector<HTMLElement>('[role=tab][aria-selected=true]')?.focus();
    } }, ...tabs.map(([t, name]) =>
      h('button', { role: 'tab', id: 'tab-' + t, 'aria-selected': String(t === this.tab), tabindex: t === this.tab ? 0 : -1, 'aria-controls': 'range-body', onclick: () => {
        this.tab = t;
        this.frame();
      } }, name)));
    const save = able(h('button', { class: 'small' }, 'Export range'), 'Write this range alone');
    this.onExport(save);
    this.head = h('div', { class: 'head' }, tablist,
      h('span', { class: 'soft grow what' }, `${dur(r.t1 - r.t0)} from ${clock(r.t0 - v.model.from(), (r.t1 - r.t0) / 10)} · ${who}${rest && !this.idle ? ` but ${count(rest)} idle` : ''}`),
      idle,
      h('button', { class: 'small', onclick: () => v.show(r.t0 - (r.t1 - r.t0) * 0.02, r.t1 + (r.t1 - r.t0) * 0.02) }, 'Zoom to range'),
      v.model.hello?.formats.length ? save : null,
      h('button', { class: 'icon', 'aria-label': 'Close', title: 'Close (Esc)', onclick: () => v.onRange(null, true) }, '×'));
    this.body.id = 'range-body';
    this.body.setAttribute('role', 'tabpanel');
    this.body.setAttribute('aria-labelledby', 'tab-' + this.tab);
    fill(this.box, h('div', { class: 'grip', 'aria-hidden': 'true' }), this.head, this.body);
    this.grip(this.box.querySelector('.grip')!);
    this.draw();
  }

  private grip(g: HTMLElement): void {
    g.addEventListener('pointerdown', (e) => {
      g.setPointerCapture(e.pointerId);
      const y = e.clientY;
      const was = this.box.offsetHeight;
      const move = (m: PointerEvent): void => {
        this.box.style.height = Math.max(120, Math.min(innerHeight * 0.8, was + y - m.clientY)) + 'px';
        this.v.resize();
      };
      g.addEventListener('pointermove', move);
      g.addEventListener('pointerup', () => g.removeEventListener('pointermove', move), { once: true });
    });
  }

  private select<T extends string>(label: string, value: T, options: [T, string][], set: (v: T) => void): HTMLElement {
    const s = h('select', { 'aria-label': label, onchange: () => set(s.value as T) }, ...options.map(([k, t]) => h('option', { value: k, selected: k === value }, t)));
    return h('label', { class: 'pick' }, h('span', null, label), s);
  }

  private weightPick(): HTMLElement {
    return this.select<Weight>('Weight', this.weight, [['wall', 'wall time'], ['cpu', 'CPU time'], ['wait', 'waiting time'], ['samples', 'samples']], (w) => {
      this.weight = w;
      this.draw();
    });
  }

  private field(label: string, value: string, set: (s: string) => void): HTMLElement {
    const i = h('input', { type: 'search', value, placeholder: label, 'aria-label': label, title: `${label}: text or regular expression`, onchange: () => set(i.value) });
    return i;
  }

  draw(): void {
    if (this.box.hidden) return;
    if (this.problem) return fill(this.body, h('p', { class: 'problem' }, this.problem));
    if (!this.tree) return fill(this.body, h('p', { class: 'soft pad' }, 'Adding up…'));
    const t = this.order === 'time' && this.inTime && this.tab === 'flame' ? this.inTime : this.tree;
    this.root = build(t, this.weight, this.name, this.filter());
    for (const f of [this.flame, this.lower]) {
      f.weight = this.weight;
      f.differs = false;
    }
    if (this.tab === 'flame') this.drawFlame();
    else if (this.tab === 'functions') this.drawFunctions();
    else if (this.tab === 'waits') this.drawWaits();
    else this.drawCompare();
  }

  private tools(...more: HTMLElement[]): HTMLElement {
    return h('div', { class: 'tools' }, this.weightPick(), ...more,
      this.field('Focus on', this.focusText, (s) => {
        this.focusText = s;
        this.draw();
      }),
      this.field('Hide', this.hideText, (s) => {
        this.hideText = s;
        this.draw();
      }));
  }

  private drawFlame(): void {
    const root = this.root!;
    const order = this.select<Order>('Order', this.order, [['heavy', 'left-heavy'], ['time', 'time-ordered'], ['sandwich', 'sandwich']], (o) => {
      this.order = o;
      if (o === 'time' && !this.inTime) void this.show(this.v.range!);
      else this.draw();
    });
    const up = h('button', { class: 'small', hidden: this.order === 'sandwich', 'aria-pressed': String(this.up), onclick: () => {
      this.up = !this.up;
      this.draw();
    } }, this.up ? 'Flame ▲' : 'Icicle ▼');
    const by = able(h('button', { class: 'small', 'aria-pressed': String(this.byThread), onclick: () => {
      this.byThread = !this.byThread;
      void this.show(this.v.range!);
    } }, 'By thread'), 'A graph for each thread beside the others');
    const tools = this.tools(order, up, by);
    if (!root.value) return fill(this.body, tools, h('p', { class: 'soft pad' }, this.empty()));
    if (this.order === 'sandwich') {
      const rows = table(root).sort((a, b) => b.self - a.self);
      if (!rows.some((r) => r.name === this.picked)) this.picked = rows[0]?.name ?? '';
      const s = sandwich(root, this.picked);
      const pick = this.select('Function', this.picked, rows.slice(0, 400).map((r) => [r.name, r.name] as [string, string]), (n) => {
        this.picked = n;
        this.draw();
      });
      pick.classList.add('wide');
      this.flame.up = true;
      fill(this.body, h('div', { class: 'above' }, tools, h('div', { class: 'tools' }, pick)), h('div', { class: 'sandwich' },
        h('h3', null, 'Callers of it, the nearest at the bottom'), this.flame.box, h('h3', null, 'What it calls'), this.lower.box));
      this.flame.set(s.callers, 'Callers of ' + this.picked);
      this.lower.set(s.callees, 'Callees of ' + this.picked);
      // It stands in the middle: what called it above, what it calls below.
      this.body.scrollTop = this.lower.box.offsetTop - this.body.offsetTop - this.body.clientHeight * 0.6;
      return;
    }
    this.flame.up = this.up;
    if (this.order === 'heavy') heavy(root);
    fill(this.body, tools, this.flame.box);
    this.flame.set(root, this.order === 'heavy' ? 'Flame graph, left-heavy' : 'Flame graph, in the order of time');
    this.body.scrollTop = this.up ? this.body.scrollHeight : 0;
  }

  private empty(): string {
    if (this.focusText || this.hideText) return 'Nothing is left by these patterns.';
    if (this.weight === 'cpu') return 'No CPU time was spent here.';
    if (this.weight === 'wait') return 'Nothing waited here.';
    return 'No calls in this range.';
  }

  private amount(x: number): string {
    return this.weight === 'samples' ? count(x) : dur(x);
  }

  // sortable makes a table whose columns sort by a click on their head.
  private sortable<T>(caption: string, rows: T[], cols: { key: string; title: string; num?: boolean; wide?: boolean; by: (r: T) => number | string; cell: (r: T) => Node_ }[], limit = 400): HTMLElement {
    const sort = this.sorts[this.tab] ?? { key: this.tab === 'compare' ? 'change' : 'self', down: true };
    const col = cols.find((c) => c.key === sort.key) ?? cols.find((c) => c.num)!;
    const sorted = [...rows].sort((a, b) => {
      const x = col.by(a);
      const y = col.by(b);
      const o = typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y));
      return sort.down ? -o : o;
    });
    const look = (c: { num?: boolean; wide?: boolean }): string => (c.num ? 'num' : '') + (c.wide ? ' less-wide' : ''); // the latter only where there is room
    const head = h('tr', null, ...cols.map((c) => h('th', { scope: 'col', class: look(c), 'aria-sort': c === col ? (sort.down ? 'descending' : 'ascending') : 'none' },
      h('button', { class: 'link', onclick: () => {
        this.sorts[this.tab] = { key: c.key, down: c === col ? !sort.down : !!c.num };
        this.draw();
      } }, c.title, c === col ? (sort.down ? ' ▼' : ' ▲') : ''))));
    const tb = h('tbody', null, ...sorted.slice(0, limit).map((r) => h('tr', null, ...cols.map((c) => h('td', { class: look(c) }, c.cell(r) as never)))));
    return h('div', { class: 'scroll' }, h('table', { class: 'grid' }, h('caption', { class: 'away' }, caption), h('thead', null, head), tb),
      rows.length > limit ? h('p', { class: 'soft pad' }, `${count(rows.length - limit)} more; narrow them down with the filter`) : null);
  }

  private nameCell(name: string, func: number): HTMLElement {
    return func >= 0 && func < 2 ** 31
      ? h('span', { class: 'fn' }, h('button', { class: 'link', title: name + ' — light up its calls', onclick: () => this.onFunc(func) }, name),
        h('button', { class: 'small quiet', title: 'Callers and callees', 'aria-label': 'Callers and callees of ' + name, onclick: () => {
          this.picked = name;
          this.order = 'sandwich';
          this.tab = 'flame';
          this.frame();
        } }, '⇅'))
      : h('span', { title: name }, name);
  }

  private find(): HTMLElement {
    const i = h('input', { type: 'search', value: this.needle, placeholder: 'Filter names', 'aria-label': 'Filter names', onchange: () => {
      this.needle = i.value;
      this.draw();
    } });
    return i;
  }

  private drawFunctions(): void {
    const total = this.root!.value || 1;
    const p = this.pattern(this.needle);
    const rows = table(this.root!).filter((r) => r.func < 2 ** 31 && (!p || p.test(r.name)));
    const bar = (x: number): HTMLElement => h('span', { class: 'bar' }, h('i', { style: { width: Math.min(100, (100 * x) / total) + '%' } }), this.amount(x));
    fill(this.body, this.tools(this.find()), this.sortable<FuncRow>('Functions in the selected range', rows, [
      { key: 'name', title: 'Function', by: (r) => r.name, cell: (r) => this.nameCell(r.name, r.func) },
      { key: 'module', title: 'Module', wide: true, by: (r) => this.v.model.funcs[r.func]?.module ?? '', cell: (r) => (this.v.model.funcs[r.func]?.module ?? '').replace(/.*\//, '') },
      { key: 'self', title: 'Self', num: true, by: (r) => r.self, cell: (r) => bar(r.self) },
      { key: 'selfp', title: '%', num: true, by: (r) => r.self, cell: (r) => percent(r.self / total) },
      { key: 'total', title: 'Total', num: true, by: (r) => r.total, cell: (r) => bar(r.total) },
      { key: 'totalp', title: '%', num: true, by: (r) => r.total, cell: (r) => percent(r.total / total) },
      { key: 'count', title: 'Calls', num: true, wide: true, by: (r) => r.count, cell: (r) => count(r.count) },
    ]));
  }

  private drawWaits(): void {
    const m = this.v.model;
    const arch = m.hello?.process.arch ?? '';
    const what = (w: WaitRow): string => w.kind === 'lock' && w.lock ? (this.waitsBy === 'reason' ? lockName(w.lock) : lockText(w.lock, this.v))
      : w.wait || (w.call >= 0 ? syscall(w.call, arch) : w.state === 'runnable' ? 'a CPU' : w.state ?? '');
    const by = this.select<string>('By', this.waitsBy, [['thread', 'thread and reason'], ['reason', 'lock, file or reason'], ['call', 'call']], (x) => {
      this.waitsBy = x;
      this.draw();
    });
    interface W { what: string; thread: string; kind: string; count: number; total: number; max: number; at: number; seq: number }
    const who = (seq: number): string => this.name(2 ** 31 + seq)!.name; // of Go's and Node's threads all have one name
    let rows: W[] = (this.waits ?? []).map((w) => ({ what: what(w), thread: who(w.thread), kind: w.kind === 'lock' ? 'lock' : w.state ?? '', count: w.count, total: w.total,
      max: w.max, at: w.at, seq: w.thread }));
    if (this.waitsBy === 'call') {
      // By the function that waited: the tree knows.
      const root = build(this.tree!, 'wait', this.name, this.filter());
      rows = table(root).filter((r) => r.self > 0 && r.func < 2 ** 31).map((r) => ({ what: r.name, thread: '', kind: 'call', count: r.count, total: r.self, max: NaN, at: NaN, seq: -1 }));
    } else if (this.waitsBy === 'reason') {
      const sums = new Map<string, W>();
      for (const r of rows) {
        // How long a sleep still has differs from one look to the next.
        r.what = r.what.replace(/\(([\d.]+(ns|us|µs|ms|s|m|h))+\)$/, '');
        const s = sums.get(r.what + r.kind);
        if (!s) sums.set(r.what + r.kind, { ...r, thread: '' });
        else {
          s.count += r.count;
          s.total += r.total;
          if (r.max > s.max) Object.assign(s, { max: r.max, at: r.at, seq: r.seq });
        }
      }
      rows = [...sums.values()];
    }
    const p = this.pattern(this.needle);
    if (p) rows = rows.filter((r) => p.test(r.what) || p.test(r.thread));
    const tools = h('div', { class: 'tools' }, by, this.find());
    if (!rows.length) return fill(this.body, tools, h('p', { class: 'soft pad' }, 'Nothing waited in this range.'));
    fill(this.body, tools, this.sortable<W>('What threads waited for', rows, [
      { key: 'what', title: 'Waits for', by: (r) => r.what, cell: (r) => r.what },
      { key: 'kind', title: 'State', wide: true, by: (r) => r.kind, cell: (r) => r.kind },
      { key: 'thread', title: 'Thread', by: (r) => r.thread, cell: (r) => r.thread },
      { key: 'self', title: 'Total', num: true, by: (r) => r.total, cell: (r) => dur(r.total) },
      { key: 'count', title: 'Times', num: true, by: (r) => r.count, cell: (r) => count(r.count) },
      { key: 'max', title: 'Longest', num: true, by: (r) => r.max, cell: (r) => isNaN(r.max) ? '' : h('button', { class: 'link', title: 'Show it', onclick: () => {
        const pad = r.max * 0.2;
        this.v.setFollow(false);
        this.v.show(r.at - pad, r.at + r.max + pad);
      } }, dur(r.max)) },
    ]));
  }

  private waitsBy = 'thread';

  private drawCompare(): void {
    const v = this.v;
    const r = v.range!;
    const mark = h('button', { class: 'small', onclick: () => {
      const funcs = [...v.model.funcs];
      const name = this.name;
      this.before = { label: `${dur(r.t1 - r.t0)} from ${clock(r.t0 - v.model.from(), 1e6)}`, tree: this.tree!, span: r.t1 - r.t0, names: (i) => (i >= 2 ** 31 ? name(i) : funcs[i]) };
      this.draw();
    } }, 'Take this range as “before”');
    const other = v.model.hello?.compare ? able(h('button', { class: 'small', onclick: () => void this.other() }, `Take ${v.model.hello.compare} as “before”`), '') : null;
    const tools = h('div', { class: 'tools' }, this.weightPick(), mark, other,
      h('button', { class: 'small', 'aria-pressed': String(this.share), title: 'Scale both to the same sum', onclick: () => {
        this.share = !this.share;
        this.draw();
      } }, 'By share'));
    if (!this.before) {
      return fill(this.body, tools, h('p', { class: 'soft pad' }, 'Take this range as “before”, then select another one on the timeline: the graph and the table show what changed.'));
    }
    const a = build(this.before.tree, this.weight, this.before.names, this.filter());
    const d = diff(a, this.root!, this.share);
    this.flame.differs = true;
    const rows = table(d).filter((x) => x.self || x.otherSelf || x.total || x.otherTotal);
    const total = d.value || 1;
    const delta = (now: number, was: number): string => (now >= was ? '+' : '−') + this.amount(Math.abs(now - was));
    const t = this.sortable<FuncRow>('What changed', rows, [
      { key: 'name', title: 'Function', by: (x) => x.name, cell: (x) => this.nameCell(x.name, x.func) },
      { key: 'before', title: 'Self before', num: true, wide: true, by: (x) => x.otherSelf, cell: (x) => this.amount(x.otherSelf) },
      { key: 'after', title: 'Self now', num: true, by: (x) => x.self, cell: (x) => this.amount(x.self) },
      { key: 'change', title: 'Change', num: true, by: (x) => Math.abs(x.self - x.otherSelf), cell: (x) => h('span', { class: x.self >= x.otherSelf ? 'more' : 'less' }, delta(x.self, x.otherSelf)) },
      { key: 'changep', title: 'of all', num: true, by: (x) => x.self - x.otherSelf, cell: (x) => (x.self >= x.otherSelf ? '+' : '−') + percent(Math.abs(x.self - x.otherSelf) / total) },
    ]);
    fill(this.body, tools, h('p', { class: 'soft pad' }, `Before: ${this.before.label}${this.share ? ', scaled to the same sum' : ''}. Orange takes more now, blue less.`), this.flame.box, t);
    this.flame.up = this.up;
    this.flame.set(d, 'Differential flame graph');
  }

  private async other(): Promise<void> {
    try {
      const tree = await this.v.conn.ask<Tree>('tree', { src: 1 });
      const names = tree.names ?? [];
      this.before = { label: this.v.model.hello!.compare!, tree, names: (i) => names[i], span: 0 };
    } catch (e) {
      this.problem = (e as Error).message;
    }
    this.draw();
  }

  // lit puts a note of search hits beside the range.
  note(text: string): void {
    const w = this.head?.querySelector('.what');
    if (w && text) put(w, ' · ' + text);
  }
}

type Node_ = HTMLElement | string;
