// The analysis panel is always open. It covers the selected range, otherwise the visible time, and of a
// live recording that is followed the last 10 s.

import { able } from './able';
import { type AFunc, type Analysis, parts, type TreeColumns } from './analysis';
import { bottomUp, CallTree } from './calltree';
import { Compare } from './compare';
import { field, grip, nameCell, select } from './controls';
import type { Desk } from './desk';
import { el, fill, h } from './dom';
import { pattern } from './filter';
import { Flame } from './flame';
import { FlameTab } from './flametab';
import { clock, count, dur, lockKey } from './format';
import { functionsTab } from './functions';
import { type Actions, excluded, overview, type ProcessTime, whichProcesses } from './overview';
import { CriticalPath } from './path';
import { Press } from './press';
import { ioTab } from './io';
import { tracedTab } from './traced';
import { locksTab } from './locks';
import { covers, folds, mine } from './mycode';
import type { Sorts } from './table';
import { type Tab, tabList, tabs } from './tabs';
import type { Timeline } from './timeline';
import { build, type Filter, type Named, type Node, type Weight } from './tree';
import { waitsTab } from './waits';

const mostly = 0.5; // share of the time below the program's own code from which other frames are folded
const rolling = 10e9; // ns of a live recording that the panel shows
const settle = 350; // ms without a move until a new view is analyzed

// Scope is the part of the recording that the panel covers.
interface Scope {
  args: Record<string, unknown>;
  words: string;
  live: boolean;
}

export class Panel implements Desk {
  private box = el('panel');
  private head = h('div', { class: 'head' });
  body = h('div', { class: 'body', id: 'panel-body', role: 'tabpanel' });
  private press = new Press(this.box);
  private status = h('span', { class: 'soft what', role: 'status' });
  private left = h('span', { class: 'soft left' });
  flame = new Flame();
  lower = new Flame();
  private grid = new CallTree();
  tab: Tab = 'overview';
  readonly graphs = new FlameTab(this);
  private comparison = new Compare(this);
  weight: Weight = 'cpu';
  idle = false; // idle waits are in the numbers
  code: '' | 'my' | 'all' = ''; // whether frames outside of the program's own code are folded; '': if most of the time is below its own
  private upward = false; // call tree from the bottom
  private path: CriticalPath;
  private focusText = '';
  private hideText = '';
  needle = '';
  private openLock = '';
  private openFinding = '';
  private openCalls = '';
  private a: Analysis | null = null;
  private asked = ''; // scope of the newest question
  private busy = false;
  private rated = false; // the tracks are in the order of what their threads did
  private timer = 0;
  problem = '';
  root: Node | null = null;
  sorts: Sorts = {};
  onName = (_: string): void => {};
  onTime = (_t0: number, _t1: number, _seq: number): void => {};
  onThread = (_: number): void => {};
  onTask: Actions['task'] = () => {};
  onLane = (_: string): void => {};
  onExport = (_: HTMLButtonElement): void => {};
  onChange = (): void => {};
  notes = (): HTMLElement => h('div');

  constructor(readonly v: Timeline) {
    this.path = new CriticalPath(v, () => this.draw());
    for (const f of [this.flame, this.lower]) {
      f.color = (k) => this.v.model.fillOfName(k.name); // as on the timeline
      f.onPick = (k) => this.callers(k.name);
    }
    fill(this.box, h('div', { class: 'grip', 'aria-hidden': 'true' }), h('h2', { class: 'away' }, 'Analysis'), this.head, this.body);
    grip(this.box.querySelector('.grip')!, this.box, () => v.resize());
  }

  get up(): boolean {
    return this.graphs.up;
  }

  get analysis(): Analysis | null {
    return this.a;
  }

  set match(f: ((func: number, name: string) => boolean) | null) {
    this.flame.match = this.lower.match = f;
    this.restyle();
  }

  restyle(): void {
    this.flame.byState = this.lower.byState = this.v.model.colorBy === 'state';
    this.flame.draw();
    this.lower.draw();
  }

  // scope is what the panel is about at present.
  private scope(): Scope {
    const v = this.v;
    const args: Record<string, unknown> = {};
    const b = v.bounds();
    const r = v.range;
    let words: string;
    let live = false;
    if (r) {
      Object.assign(args, { t0: Math.round(r.t0), t1: Math.round(r.t1) });
      words = `Selected: ${dur(r.t1 - r.t0)} from ${clock(r.t0 - b.t0, (r.t1 - r.t0) / 10)}`;
    } else if (v.follow && v.model.live) {
      args.last = rolling;
      live = true;
      words = `Last ${dur(Math.min(rolling, b.t1 - b.t0))}, rolling`;
    } else {
      const g = v.target();
      const slack = (b.t1 - b.t0) * 0.01;
      if (g.t0 <= b.t0 + slack && g.t1 >= b.t1 - slack && !v.model.live) words = `Whole recording: ${dur(b.t1 - b.t0)}`;
      else {
        const t0 = Math.max(g.t0, b.t0);
        const t1 = Math.min(g.t1, b.t1);
        Object.assign(args, { t0: Math.round(t0), t1: Math.round(Math.max(t1, t0 + 1)) });
        words = `Visible: ${dur(Math.max(0, t1 - t0))} from ${clock(t0 - b.t0, Math.max(1, t1 - t0) / 10)}`;
      }
    }
    if (v.chosen.size) {
      args.threads = [...v.chosen];
      words += ` · ${[...v.chosen]
        .map((s) => v.model.threads.get(s)?.name ?? '')
        .slice(0, 3)
        .join(', ')}${v.chosen.size > 3 ? ` and ${v.chosen.size - 3} more` : ''}`;
    } else if (v.threads.hidden.size || v.threads.filter.trim()) {
      args.threads = v.threads.listed;
      words += ` · ${count(v.threads.listed.length)} shown thread${v.threads.listed.length === 1 ? '' : 's'}`;
    }
    if (this.idle) args.idle = true;
    if (this.code === 'all') args.runtime = true;
    if (this.graphs.byThread && this.tab === 'flame') args.by_thread = true;
    return { args, words, live };
  }

  // changed is called when the view, the selection or the choice of threads changes.
  changed(now = false): void {
    if (!this.v.model.hello || !this.v.model.status?.to) return;
    clearTimeout(this.timer);
    const s = this.scope();
    this.status.textContent = s.words;
    if (s.live && !now) {
      this.timer = window.setTimeout(() => this.changed(true), document.hidden ? 2000 : 1000);
      if (this.a && JSON.stringify(s.args) === this.asked) return;
    } else if (!s.live && JSON.stringify(s.args) === this.asked && !this.problem) return;
    if (this.busy) {
      this.timer = window.setTimeout(() => this.changed(true), 100);
      return;
    }
    if (now || !this.a) void this.load(s);
    else this.timer = window.setTimeout(() => this.changed(true), settle);
  }

  // again repeats a question that failed, after a new connection.
  again(): void {
    this.asked = '';
    this.changed(true);
  }

  private async load(s: Scope): Promise<void> {
    const key = JSON.stringify(s.args);
    const other = key !== this.asked;
    this.asked = key;
    this.busy = true;
    if (!this.a) this.press.calm(() => this.draw());
    else if (other) this.box.classList.add('stale');
    try {
      const a = await this.v.conn.ask<Analysis>('analysis', s.args);
      if (key === this.asked) {
        this.a = a;
        if (!this.rated && !Object.keys(s.args).length) {
          this.rated = true;
          this.v.threads.rate(a.threads);
        }
        this.problem = '';
        this.graphs.inTime = null;
      }
    } catch (e) {
      if (key === this.asked) this.problem = (e as Error).message;
    }
    this.busy = false;
    this.box.classList.remove('stale');
    const ran = this.v.model.live && this.v.follow;
    if (ran) this.timer = window.setTimeout(() => this.changed(true), 1000);
    // What the pointer or the focus is on stays as it is while the numbers roll on.
    if (ran && !other && this.held()) return;
    this.press.calm(() => this.draw());
  }

  // settled reports whether the panel shows the present scope.
  settled(): boolean {
    return !this.busy && (!!this.a || !!this.problem) && JSON.stringify(this.scope().args) === this.asked;
  }

  // held reports whether someone is about to use what the panel shows.
  private held(): boolean {
    return this.body.matches(':hover') || (this.body.contains(document.activeElement) && document.activeElement !== this.body);
  }

  show(tab: Tab): void {
    this.tab = tab;
    this.draw();
    this.onChange();
    this.changed(true);
  }

  private act: Actions = {
    name: (n) => this.onName(n),
    callers: (n) => this.callers(n),
    time: (t0, t1, seq) => this.onTime(t0, t1, seq),
    thread: (seq) => this.onThread(seq),
    task: (task) => this.onTask(task),
    lock: (n) => {
      this.openLock = n;
      this.show('locks');
    },
    tab: (t) => this.show(t as Tab),
    lane: (addr) => this.onLane(addr),
    seqOf: (tid) => [...this.v.model.threads.values()].filter((t) => t.tid === tid).pop()?.seq ?? -1,
  };

  // lock shows a lock by its address, or by its key among those of several processes.
  lock(addr: string): void {
    this.openLock = this.a?.report.locks.find((l) => lockKey(l) === addr || l.addr === addr)?.name ?? '';
    this.show('locks');
  }

  file(path: string): void {
    this.needle = path;
    this.show('io');
  }

  // only restricts the analysis to stacks through a function, or hides the function there.
  only(name: string, hidden: boolean): void {
    const exact = `^${name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}$`;
    if (!hidden) this.focusText = exact;
    else this.hideText = this.hideText ? `${this.hideText}|${exact}` : exact;
    this.show(this.tab === 'tree' || this.tab === 'functions' ? this.tab : 'flame');
  }

  callers(name: string): void {
    this.graphs.picked = name;
    this.graphs.order = 'sandwich';
    this.show('flame');
  }

  private redraw = (): void => this.draw();
  private look = (s: string): void => {
    this.needle = s;
    this.draw();
  };

  private name = (i: number): Named | undefined => {
    const f = this.a?.funcs[i];
    if (f?.thread === undefined) return f;
    const t = this.v.model.threads.get(f.thread);
    return { name: `${f.name} (${t?.tid ?? ''})` };
  };

  private owned(): (f: AFunc) => boolean {
    return this.v.model.own();
  }

  // processes adds up the threads of each process, of several.
  private processes(a: Analysis): ProcessTime[] {
    const m = this.v.model;
    const all = new Map<number, ProcessTime>();
    if (!m.hello?.processes?.length) return [];
    for (const t of a.threads) {
      const thread = m.threads.get(t.seq);
      const p = thread?.process ?? 0;
      const info = m.hello.processes[p];
      if (!thread || !info) continue; // the timeline has it no more
      let sum = all.get(p);
      if (!sum) {
        sum = { ...t, name: info.comm, tid: info.pid, is_idle: true, threads: 0, ended: !!info.ended };
        for (const k of parts) sum[k] = 0;
        sum.observed = 0;
        all.set(p, sum);
      }
      sum.threads++;
      sum.observed += t.observed;
      sum.is_idle = sum.is_idle && !!t.is_idle;
      for (const k of parts) sum[k] += t[k];
    }
    return [...all.values()].sort((x, y) => y.cpu - x.cpu);
  }

  private pattern(s: string): RegExp | null {
    return s ? pattern(s) : null;
  }

  filter(): Filter {
    return { focus: this.pattern(this.focusText), hide: this.pattern(this.hideText) };
  }

  // frame draws the head with its tabs.
  private frame(): void {
    const v = this.v;
    const names = tabs.filter(
      (t) =>
        (t !== 'io' || this.tab === 'io' || this.a?.report.io) &&
        (t !== 'traced' || this.tab === 'traced' || this.a?.report.traced) &&
        (t !== 'compare' || v.model.hello?.compare || v.range || this.comparison.before),
    );
    if (!names.includes(this.tab)) this.tab = 'overview';
    const list = tabList(names, this.tab, (t) => this.show(t));
    const focused = this.head.contains(document.activeElement) ? document.activeElement?.id : '';
    const save = able(h('button', { class: 'small' }, 'Export range'), 'Save the selected range alone');
    this.onExport(save);
    const r = v.range;
    const left = [this.a && whichProcesses(this.a), this.a && excluded(this.a)].filter((x) => x).join(' · ');
    fill(this.left, left);
    this.left.title = left;
    const idle =
      this.idle || (this.a && excluded(this.a))
        ? able(
            h(
              'button',
              {
                class: 'small',
                id: 'idle',
                'aria-pressed': String(this.idle),
                onclick: () => {
                  this.idle = !this.idle;
                  this.onChange();
                  this.changed(true);
                },
              },
              'Idle waits',
            ),
            'Count the time in which threads only wait for work',
          )
        : null;
    fill(
      this.head,
      list,
      this.status,
      this.left,
      h('span', { class: 'grow' }),
      idle,
      r
        ? h('button', { class: 'small', onclick: () => v.show(r.t0 - (r.t1 - r.t0) * 0.02, r.t1 + (r.t1 - r.t0) * 0.02) }, 'Zoom to range')
        : null,
      r && v.model.hello?.formats.length ? save : null,
      r
        ? h('button', { class: 'small', title: 'Clear the selected range (Esc)', onclick: () => v.onRange(null, true) }, 'Clear range')
        : null,
    );
    if (focused) document.getElementById(focused)?.focus();
    this.body.setAttribute('aria-labelledby', `tab-${this.tab}`);
  }

  weightPick(): HTMLElement {
    return select<Weight>(
      'Weight',
      this.weight,
      [
        ['cpu', 'CPU time'],
        ['wait', 'waiting time'],
        ['lock', 'time waiting for locks and conditions'],
        ['wall', 'elapsed time'],
        ['samples', 'samples'],
      ],
      (w) => {
        this.weight = w;
        this.onChange();
        this.draw();
      },
    );
  }

  draw(): void {
    this.frame();
    if (this.problem && !this.a) {
      fill(this.body, h('p', { class: 'problem' }, this.problem));
      return;
    }
    const a = this.a;
    if (!a) {
      fill(this.body, h('p', { class: 'soft pad' }, this.v.model.status?.to ? 'Adding up…' : 'Waiting for samples…'));
      return;
    }
    this.root = build(this.columns(a.tree), this.weight, this.name, this.filter());
    for (const f of [this.flame, this.lower]) {
      f.weight = this.weight;
      f.byState = this.v.model.colorBy === 'state';
      f.differs = false;
    }
    const top = this.body.scrollTop;
    switch (this.tab) {
      case 'overview':
        fill(this.body, overview(a, this.owned(), this.act, this.processes(a), this.path.steps()));
        break;
      case 'flame':
        this.graphs.draw();
        if (this.problem) this.body.prepend(h('p', { class: 'problem' }, `${this.problem}; the numbers are older`));
        return;
      case 'tree':
        this.drawTree();
        break;
      case 'functions':
        functionsTab(this);
        break;
      case 'waits':
        fill(this.body, waitsTab(a, this.act, this.sorts, this.needle, this.find, this.again));
        break;
      case 'locks':
        fill(
          this.body,
          locksTab(a, this.act, this.openLock, (n) => {
            this.openLock = n;
            this.draw();
          }),
        );
        break;
      case 'traced':
        fill(
          this.body,
          tracedTab(
            a,
            this.act,
            this.sorts,
            this.openCalls,
            (n) => {
              this.openCalls = n;
              this.draw();
            },
            this.redraw,
          ),
        );
        break;
      case 'io':
        fill(
          this.body,
          ioTab(
            a,
            this.act,
            this.sorts,
            this.needle,
            this.openFinding,
            (k) => {
              this.openFinding = k;
              this.draw();
            },
            this.look,
            this.redraw,
          ),
        );
        break;
      case 'notes':
        if (this.body.firstElementChild !== this.notes()) fill(this.body, this.notes());
        break;
      case 'compare':
        this.comparison.draw();
    }
    if (this.problem) this.body.prepend(h('p', { class: 'problem' }, `${this.problem}; the numbers are older`));
    this.body.scrollTop = top;
  }

  // columns are those of a tree with idle waits counted, if they are.
  columns(t: TreeColumns): TreeColumns {
    if (!this.idle) return t;
    const plus = (x: number[]): number[] => x.map((v, i) => v + t.idle[i]!);
    return { ...t, wall: plus(t.wall), wait: plus(t.wait) };
  }

  tools(...more: (HTMLElement | null)[]): HTMLElement {
    return h(
      'div',
      { class: 'tools' },
      this.weightPick(),
      ...more,
      field('Focus on', this.focusText, (s) => {
        this.focusText = s;
        this.draw();
      }),
      field('Hide', this.hideText, (s) => {
        this.hideText = s;
        this.draw();
      }),
    );
  }

  // fold is the test by which frames are folded; null where all are shown.
  fold(root: Node): ((k: Node) => boolean) | null {
    const own = this.a && mine(this.a, this.owned());
    return own && (this.code || (covers(root, own) >= mostly ? 'my' : 'all')) === 'my' ? own : null;
  }

  codeSwitch(root: Node): HTMLElement | null {
    if (!this.a || !mine(this.a, this.owned())) return null;
    const on = this.fold(root) !== null;
    return able(
      h(
        'button',
        {
          class: 'small',
          'aria-pressed': String(on),
          onclick: () => this.setCode(on ? 'all' : 'my'),
        },
        'My code',
      ),
      'Fold frames of libraries and runtimes, and recursion',
    );
  }

  setCode(code: Panel['code']): void {
    this.code = code;
    this.changed(true);
    this.onChange();
    this.draw();
  }

  empty(): string {
    if (this.focusText || this.hideText) return 'No stack matches these patterns.';
    if (this.weight === 'cpu') return 'No CPU time was spent here.';
    if (this.weight === 'wait') return 'No waits here, idle ones aside.';
    if (this.weight === 'lock') return 'No thread waited for a lock here.';
    return 'No calls in this range.';
  }

  amount(x: number): string {
    return this.weight === 'samples' ? count(x) : dur(x);
  }

  private drawTree(): void {
    const root = this.root!;
    const dir = select(
      'Order',
      this.upward ? 'up' : 'down',
      [
        ['down', 'top-down: from the outermost calls'],
        ['up', 'bottom-up: from functions to their callers'],
      ],
      (d) => {
        this.upward = d === 'up';
        this.draw();
      },
    );
    const tools = this.tools(dir, this.codeSwitch(root));
    if (!root.value) {
      fill(this.body, tools, h('p', { class: 'soft pad' }, this.empty()));
      return;
    }
    const own = this.owned();
    const test = this.fold(root);
    const fold = test && ((open: (path: string) => boolean): Node => folds(root, test, open));
    this.grid.set({
      root: this.upward ? bottomUp(fold ? fold(() => false) : root) : root,
      fold: this.upward ? null : fold,
      amount: (x) => this.amount(x),
      onName: (n) => this.onName(n),
      own: (i) => {
        const f = this.a?.funcs[i];
        return !!f && own(f);
      },
    });
    fill(this.body, tools, this.grid.box);
  }

  // find is the field of needle.
  find(): HTMLElement {
    return field('Filter names', this.needle, (s) => {
      this.needle = s;
      this.draw();
    });
  }

  calmly(): void {
    this.press.calm(() => this.draw());
  }

  args(): Record<string, unknown> {
    const { last, idle, ...args } = this.scope().args;
    void idle;
    const { t1 } = this.v.bounds();
    return { ...args, ...(last ? { t0: Math.round(t1 - rolling), t1: Math.round(t1) } : {}) };
  }

  nameCell(name: string, func: number): HTMLElement {
    return nameCell(name, func >= 0 && { onName: () => this.onName(name), callers: () => this.callers(name) });
  }
}
