// The tooltip and the panel of a selected call.

import { able } from './able';
import { theme } from './color';
import { stateText } from './draw';
import { el, fill, fit, h, put, say } from './dom';
import { base, clock, count, dur, lockName, syscall } from './format';
import {
  type CallInfo,
  type Calls,
  type Detail,
  GAPS,
  type LaneInfo,
  LOCKS,
  type LockInfo,
  PAUSES,
  STATES,
  type ThreadInfo,
  type Where,
} from './proto';
import { sourceLink } from './settings';
import { type Sums, sumsView } from './sums';
import type { TaskAt } from './tasks';
import { type TaskDetail, taskView } from './taskside';
import type { Timeline } from './timeline';
import { ROW, type Hit } from './track';

export function lockText(l: LockInfo, v: Timeline): string {
  const holder = l.holder ? [...v.model.threads.values()].find((t) => t.tid === l.holder) : undefined;
  const who = l.holder
    ? `, held by ${holder ? `${holder.name} (${l.holder})` : (l.name ?? l.holder)}${l.by ? ` as told by the ${l.by}` : ''}`
    : '';
  return lockName(l) + who;
}

// Why samples are missing, by number (stack.Why): as the server calls it, and in words.
const whyNames = [
  'none',
  'late',
  'stop timed out',
  'held by another tracer',
  'exec',
  'overwritten',
  'denied',
  'recording paused',
  'overhead budget',
  'thread ended',
  'stack unreadable',
  'trigger',
];
const whyText = [
  '',
  'ticks came too late',
  'a stop timed out',
  'another tracer holds the thread',
  'the process became another program',
  'events were lost',
  'the kernel refused',
  'the recording was paused',
  'held back for the overhead budget',
  'the thread ended',
  'nothing could be read of the stack',
  'a trigger fired',
];

const low = 95; // height of the panel on a narrow screen, in style.css

export class Side {
  private box = el('side');
  private tip = el('tip');
  private timer = 0;
  private key = '';
  detail: Detail | null = null;
  call: CallInfo | null = null;
  stats: Calls | null = null;
  private counted = h('div');
  private spent = h('div');
  sums: Sums | null = null;
  private said = h('p', { class: 'problem', role: 'status', hidden: true });
  onGo = (_: Where, _end: number): void => {};
  onChange = (): void => {};
  onFunc = (_: number): void => {};
  onName = (_: string): void => {}; // finds a function's calls
  onTime = (_t0: number, _t1: number, _seq: number): void => {};

  constructor(private v: Timeline) {}

  // hover shows the tooltip; what only the server knows follows a moment later.
  hover(hit: Hit | null, x: number, y: number): void {
    const v = this.v;
    v.hover = hit;
    v.wake();
    if (!hit || hit.i >= hit.row.n) {
      this.tip.hidden = true;
      this.key = '';
      clearTimeout(this.timer);
      return;
    }
    const key = `${hit.seq}/${hit.depth}/${hit.row.start[hit.i]}`;
    if (key !== this.key) {
      this.key = key;
      fill(this.tip, ...this.quick(hit));
      clearTimeout(this.timer);
      if (!hit.lane && hit.row.count[hit.i] === 1) {
        this.timer = window.setTimeout(() => void this.more(hit, key), 50);
      }
    }
    this.place(x, y);
  }

  // note shows lines beside the pointer.
  note(lines: string[], x: number, y: number): void {
    clearTimeout(this.timer);
    this.key = '';
    fill(this.tip, ...lines.map((l, i) => h(i ? 'div' : 'b', null, l)));
    this.place(x, y);
  }

  private place(x: number, y: number): void {
    this.tip.hidden = false;
    const w = this.tip.offsetWidth;
    const hh = this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(4, x + 14 + w > innerWidth ? x - w - 10 : x + 14)}px`;
    this.tip.style.top = `${Math.max(4, y + 18 + hh > innerHeight ? y - hh - 10 : y + 18)}px`;
  }

  private quick(hit: Hit): HTMLElement[] {
    const { row, i } = hit;
    const v = this.v;
    const open = row.end[i] === Infinity;
    const d = (open ? v.model.edge() : row.end[i]!) - row.start[i]!;
    const line = (...t: string[]): HTMLElement => h('div', null, ...t);
    const many = row.count[i]! > 1;
    const lasts = dur(d) + (open ? ' so far' : '');
    switch (hit.depth) {
      case STATES:
        return [h('b', null, stateText(v, row.value[i]!)), line(many ? `${count(row.count[i]!)} changes within ${dur(d)}` : lasts)];
      case LOCKS: {
        const l = v.model.locks[row.value[i]!];
        return [
          h('b', null, 'Waits for a lock'),
          line(l ? lockText(l, v) : ''),
          line(many ? `${count(row.count[i]!)} waits, ${dur(row.busy[i]!)} in all` : lasts),
        ];
      }
      case PAUSES:
        return [
          h('b', null, 'Held by sliver'),
          line(many ? `${count(row.count[i]!)} pauses, ${dur(row.busy[i]!)} of ${dur(d)}` : `for ${dur(d)}`),
        ];
      case GAPS: {
        return [
          h('b', null, row.value[i]! & 1 ? 'Mark' : 'Samples are missing'),
          line(whyText[row.value[i]! >> 1] ?? 'unknown reason'),
          d > 0 ? line(dur(d)) : line(''),
        ];
      }
    }
    const f = v.model.funcs[row.value[i]!];
    const name = f?.name ?? '?';
    if (many)
      return [
        h('b', null, `${count(row.count[i]!)} calls, too thin to show`),
        line(`the longest: ${name}`),
        line(`${dur(row.busy[i]!)} in all, within ${dur(d)}`),
        line('zoom in to see them'),
      ];
    const at = f?.file ? `${base(f.file)}${f.line ? `:${f.line}` : ''}` : '';
    return [h('b', null, name), line([at, f?.module ? base(f.module) : ''].filter(Boolean).join(' · ')), line(lasts)];
  }

  private async more(hit: Hit, key: string): Promise<void> {
    const d = await this.ask(hit.seq, hit.depth, hit.row.start[hit.i]!).catch(() => null);
    if (!d || key !== this.key) return;
    const c = d.calls[hit.depth];
    if (!c) return;
    const line = (...t: string[]): HTMLElement => h('div', null, ...t);
    const rows = [
      h('b', null, c.name),
      line([c.file ? `${c.file}${c.line ? `:${c.line}` : ''}` : c.addr, c.module ? base(c.module) : ''].filter(Boolean).join(' · ')),
      line(`${dur(c.end - c.start)} ± ${dur(d.interval)}${c.running ? ' so far' : ''}, self ${dur(c.self)}`),
      line(`${count(c.samples)} samples · CPU ${dur(c.cpu)} · waiting ${dur(c.wait)}`),
    ];
    if (c.inner?.length) rows.push(line(`inlined here: ${c.inner.join(' → ')}`));
    const w = this.reason(d);
    if (w && d.calls.length - 1 <= hit.depth + 3) rows.push(line(w));
    fill(this.tip, ...rows);
  }

  private reason(d: Detail): string {
    if (d.lock?.lock) return `waits for ${lockText(d.lock.lock, this.v)}`;
    const s = d.state;
    return s && s.state !== 'running' ? this.laneText(s) : '';
  }

  private ask(thread: number, depth: number, start: number): Promise<Detail> {
    return this.v.conn.ask<Detail>('detail', { thread, depth: -1, at: start }).then((d) => {
      // A call that began later than its callees' view of it is not there.
      if (depth >= 0 && !d.calls[depth]) throw new Error('this call is no longer held');
      return d;
    });
  }

  // loading ends when the newest selection is loaded.
  loading: Promise<void> = Promise.resolve();

  // select keeps a call in the panel.
  select(w: Where | null): Promise<void> {
    this.loading = this.load(w);
    return this.loading;
  }

  private async load(w: Where | null): Promise<void> {
    this.hover(null, 0, 0);
    const v = this.v;
    v.selected = w;
    v.task = null;
    v.wake();
    if (!w) {
      this.box.hidden = true;
      this.detail = this.call = this.stats = this.sums = null;
      this.onChange();
      return;
    }
    this.onChange();
    this.aside(w);
    this.box.hidden = false;
    this.failed = false;
    this.detail = this.call = this.stats = this.sums = null;
    try {
      const d = await this.ask(w.thread, w.depth, w.start);
      if (v.selected !== w) return;
      this.detail = d;
      this.call = d.calls[w.depth]!;
      w.start = this.call.start;
      this.draw(w);
      say(`${this.call.name}, ${dur(this.call.end - this.call.start)}, thread ${v.model.threads.get(w.thread)?.name ?? ''}`);
      const sums = await v.conn.ask<Sums>('sums', { thread: w.thread, depth: w.depth, at: w.start }).catch(() => null);
      if (v.selected !== w) return;
      this.sums = sums;
      fill(this.spent, sums ? this.sumsOf(sums) : h('p', { class: 'soft' }, 'not known'));
      const stats = await v.conn.ask<Calls>('calls', { func: this.call.func, near: w });
      if (v.selected !== w) return;
      this.stats = stats;
      // The other elements stay: a reader may be about to click on one.
      fill(this.counted, this.statsView(stats));
    } catch (e) {
      if (v.selected !== w) return;
      this.failed = true;
      fill(this.box, this.head('Selected call'), h('p', { class: 'problem' }, (e as Error).message));
    }
  }

  // aside puts the panel, which covers a part of the tracks of a narrow screen, where the call is not: a second
  // click at the same point must reach the call.
  private aside(w: Where): void {
    const v = this.v;
    const t = v.track(w.thread);
    const end = t ? v.rowY(t, w.depth) - v.top + ROW : 0;
    this.box.classList.toggle('above', end > v.height - low);
  }

  // task keeps a task at a time in the panel.
  task(task: TaskAt, track = false): Promise<void> {
    this.loading = this.loadTask(task, track);
    return this.loading;
  }

  private async loadTask({ id, at, process }: TaskAt, track: boolean): Promise<void> {
    const v = this.v;
    this.hover(null, 0, 0);
    v.selected = this.detail = this.call = this.stats = this.sums = null;
    const is = { id, at, process };
    v.task = is;
    v.wake();
    this.onChange();
    this.box.classList.remove('above');
    this.box.hidden = false;
    this.failed = false;
    this.tell('');
    try {
      const d = await v.conn.ask<TaskDetail>('task', {
        task: id,
        process,
        at: Math.max(0, Math.round(at)),
        mode: v.tasks.sort || undefined,
      });
      if (v.task !== is) return;
      if (track) v.tasks.show(d.row, process);
      const name = `${d.what} ${d.id}`;
      fill(
        this.box,
        this.head(name),
        this.said,
        taskView(d, v.model.from(), {
          thread: (seq) => {
            const t = v.model.threads.get(seq);
            return t ? `${t.name} (${t.tid})` : '';
          },
          calls: (seq, t0, t1) => void this.holder(seq, t0, t1),
          show: (other, t) => void this.task({ id: other, at: t, process }),
          track: (row) => v.tasks.show(row, process),
          time: (t0, t1) => {
            const pad = Math.max((t1 - t0) * 0.3, 1000);
            v.setFollow(false);
            v.show(t0 - pad, t1 + pad);
            void this.task({ id, at: t0, process });
          },
          func: (n) => this.onName(n),
        }),
      );
      say(`${name}, ${d.span?.reason || d.span?.state || ''}`);
    } catch (e) {
      if (v.task !== is) return;
      this.failed = true;
      fill(this.box, this.head('Selected task'), h('p', { class: 'problem' }, (e as Error).message));
    }
  }

  private failed = false;

  // again repeats a question that failed, after a new connection.
  again(): void {
    const { selected, task } = this.v;
    if (this.failed && selected) void this.select(selected);
    else if (this.failed && task) void this.task(task);
  }

  private head(title: string): HTMLElement {
    // On a narrow screen the panel is low, so that the tracks stay in reach.
    const tall = this.box.classList.contains('tall');
    const taller = h('button', { class: 'icon narrow', 'aria-label': 'Taller', 'aria-pressed': String(tall), title: 'More of it' }, '↕');
    taller.addEventListener('click', () => taller.setAttribute('aria-pressed', String(this.box.classList.toggle('tall'))));
    return h(
      'div',
      { class: 'head' },
      h('h2', { title }, title),
      taller,
      h('button', { class: 'icon', 'aria-label': 'Close', title: 'Close (Esc)', onclick: () => void this.select(null) }, '×'),
    );
  }

  stackText(): string {
    const d = this.detail;
    if (!d) return '';
    const t = this.v.model.threads.get(d.thread);
    return [
      `${t?.name ?? 'thread'} (${t?.tid ?? ''}) at ${clock(d.at - this.v.model.from(), 1000)}`,
      ...[...d.calls]
        .reverse()
        .map((c) => `  ${c.name}${c.file ? ` ${c.file}${c.line ? `:${c.line}` : ''}` : ''}${c.module ? ` [${base(c.module)}]` : ''}`),
    ].join('\n');
  }

  async step(dir: 1 | -1): Promise<void> {
    const w = dir > 0 ? this.stats?.next : this.stats?.prev;
    if (!w) {
      say(dir > 0 ? 'no later call of this function in this thread' : 'no earlier call of this function in this thread');
      return;
    }
    await this.go({ ...w });
  }

  async go(w: Where): Promise<void> {
    await this.select(w);
    if (this.call && this.v.selected === w) this.onGo(w, this.call.end);
  }

  private draw(w: Where): void {
    const v = this.v;
    const d = this.detail!;
    const c = this.call!;
    const dl = h('dl');
    const add = (k: string, ...val: (Node | string)[]): void => put(dl, h('dt', null, k), h('dd', null, ...val));
    const place = c.file ? `${c.file}${c.line ? `:${c.line}` : ''}` : (c.addr ?? '–');
    const link = sourceLink(c.file, c.line);
    add('Place', link ? h('a', { href: link, title: 'Open it in your editor' }, place) : place);
    if (c.module) add('Module', c.module);
    if (c.kind) add('Kind', c.kind);
    if (c.inner?.length) add('Inlined here', c.inner.join(' → '));
    add('Thread', `${v.model.threads.get(w.thread)?.name ?? ''} (${v.model.threads.get(w.thread)?.tid ?? ''})`);
    add('Begin', clock(c.start - v.model.from(), 1000));
    add('Duration', `${dur(c.end - c.start)} ± ${dur(d.interval)}${c.running ? ', goes on' : ''}`);
    add('Self', dur(c.self));
    add('Samples', count(c.samples));
    if (d.state) add('State at its begin', this.laneText(d.state));
    if (d.lock?.lock) {
      const holder = [...v.model.threads.values()].find((t) => t.tid === d.lock!.lock!.holder);
      add(
        'Lock',
        `${lockText(d.lock.lock, v)} `,
        holder
          ? able(
              h(
                'button',
                {
                  class: 'small',
                  onclick: () => void this.holder(holder.seq, d.lock!.start, d.lock!.end > 0 ? d.lock!.end : v.model.edge()),
                },
                'Go to the holder',
              ),
              '',
            )
          : '',
      );
    }
    if (d.gap) add('Missing samples', whyText[whyNames.indexOf(d.gap.why ?? '')] || (d.gap.why ?? ''));
    const stack = h('ol', { class: 'stack', reversed: true });
    for (const x of [...d.calls].reverse()) {
      put(
        stack,
        h(
          'li',
          { class: x.depth === c.depth ? 'here' : '' },
          able(
            h('button', { class: 'link', onclick: () => void this.go({ thread: w.thread, depth: x.depth, start: x.start }) }, x.name),
            x.name,
          ),
          h(
            'span',
            { class: 'soft' },
            ` ${x.file ? base(x.file) + (x.line ? `:${x.line}` : '') : x.module ? base(x.module) : ''}${x.inlined ? ' (inlined)' : ''}`,
          ),
        ),
      );
    }
    const copied = h(
      'button',
      {
        class: 'small',
        onclick: async () => {
          await navigator.clipboard.writeText(this.stackText()).then(
            () => fill(copied, 'Copied'),
            () => fill(copied, 'Cannot copy here'),
          );
          setTimeout(() => fill(copied, 'Copy as text'), 1500);
        },
      },
      'Copy as text',
    );
    fill(this.counted, h('p', { class: 'soft' }, 'counting…'));
    fill(this.spent, h('p', { class: 'soft' }, 'adding up…'));
    this.tell('');
    fill(
      this.box,
      this.head(c.name),
      this.said,
      h(
        'div',
        { class: 'buttons' },
        h('button', { class: 'small', title: 'Zoom to this call (F)', onclick: () => this.zoom() }, 'Zoom to it'),
        h(
          'button',
          { class: 'small', title: 'Select its time (M)', onclick: () => v.onRange({ t0: c.start, t1: c.end }, true) },
          'Select its time',
        ),
        h('button', { class: 'small', title: 'Light up all its calls', onclick: () => this.onFunc(c.func) }, 'Find all'),
      ),
      h('h3', null, 'Where its time went'),
      this.spent,
      dl,
      h('h3', null, 'All calls of this function'),
      this.counted,
      h('h3', null, 'Stack ', copied),
      stack,
    );
  }

  private sumsOf(s: Sums): HTMLElement {
    const thread = (l: LockInfo): ThreadInfo | undefined => [...this.v.model.threads.values()].find((t) => t.tid === l.holder);
    return sumsView(s, {
      holder: (l) => thread(l)?.name ?? l.name ?? '',
      time: (t0, t1) => this.onTime(t0, t1, this.v.selected?.thread ?? -1),
      goHolder: (l, at, to) => {
        const t = thread(l);
        if (t) void this.holder(t.seq, at, to);
        else this.tell('The holder is in another process.');
      },
    });
  }

  private laneText(l: LaneInfo): string {
    const call = l.call !== undefined ? ` in ${syscall(l.call, this.v.model.hello?.process.arch ?? '')}` : '';
    return `${l.state}${call}${l.wait ? `: ${l.wait}` : ''}`;
  }

  // holder goes to what the holder of a lock did while it was waited for. Its
  // first sample may be later than the wait's: then to the first that is known.
  async holder(seq: number, from: number, to: number): Promise<void> {
    try {
      for (const at of [from, (from + to) / 2, to]) {
        const d = await this.v.conn.ask<Detail>('detail', { thread: seq, depth: -1, at });
        const top = d.calls[d.calls.length - 1];
        if (!top) continue;
        this.v.threads.hidden.delete(seq);
        this.v.layout();
        return await this.go({ thread: seq, depth: top.depth, start: top.start });
      }
      this.tell('Nothing is known of the holder at that time.');
    } catch (e) {
      this.tell((e as Error).message);
    }
  }

  private tell(text: string): void {
    this.said.hidden = !text;
    fill(this.said, text);
    if (text) say(text);
  }

  zoom(): void {
    const c = this.call;
    if (!c) return;
    const pad = Math.max((c.end - c.start) * 0.05, 25);
    this.v.setFollow(false);
    this.v.show(c.start - pad, c.end + pad);
  }

  private statsView(s: Calls): HTMLElement {
    const t = h('table', { class: 'stats' });
    const row = (k: string, val: string): void => put(t, h('tr', null, h('th', { scope: 'row' }, k), h('td', null, val)));
    row('Calls', count(s.count));
    row('Total', dur(s.total));
    row('Shortest', dur(s.min));
    row('Median', dur(s.median));
    row('Longest', dur(s.max));
    const c = h('canvas', { role: 'img', 'aria-label': this.histText(s) });
    const out = h(
      'div',
      null,
      t,
      c,
      h(
        'div',
        { class: 'buttons' },
        able(
          h('button', { class: 'small', onclick: () => void this.step(-1) }, '← Previous'),
          'Previous call ([)',
          s.prev ? '' : 'There is no earlier call of this function in this thread',
        ),
        able(
          h('button', { class: 'small', onclick: () => void this.step(1) }, 'Next →'),
          'Next call (])',
          s.next ? '' : 'There is no later call of this function in this thread',
        ),
        s.longest
          ? able(h('button', { class: 'small', onclick: () => void this.go({ ...s.longest! }) }, 'Longest'), 'Go to its longest call')
          : null,
      ),
    );
    requestAnimationFrame(() => this.hist(c, s));
    return out;
  }

  private bounds(s: Calls): [number, number] {
    let a = s.hist.findIndex((n) => n > 0);
    let b = s.hist.length - 1;
    while (b > 0 && !s.hist[b]) b--;
    a = Math.max(0, a - 1);
    return [a, Math.min(s.hist.length - 1, Math.max(b + 1, a + 7))];
  }

  private histText(s: Calls): string {
    const most = s.hist.indexOf(Math.max(...s.hist));
    return `Histogram of durations; most calls took between ${dur(2 ** (most / 2))} and ${dur(2 ** ((most + 1) / 2))}`;
  }

  private hist(c: HTMLCanvasElement, s: Calls): void {
    const w = Math.max(100, this.box.clientWidth - 28);
    const hgt = 84;
    const g = fit(c, w, hgt);
    const t = theme();
    g.fillStyle = t.panel;
    g.fillRect(0, 0, w, hgt);
    const [a, b] = this.bounds(s);
    const top = Math.max(...s.hist);
    const step = w / (b - a + 1);
    const mine = this.call ? this.call.end - this.call.start : 0;
    const bin = Math.floor(2 * Math.log2(Math.max(1, mine)));
    for (let i = a; i <= b; i++) {
      const y = (s.hist[i]! / top) * (hgt - 22);
      g.fillStyle = i === bin ? t.hit : t.load;
      if (s.hist[i]) g.fillRect((i - a) * step + 0.5, hgt - 16 - Math.max(y, 1), step - 1, Math.max(y, 1));
    }
    g.fillStyle = t.soft;
    g.font = '10px ui-sans-serif, system-ui, sans-serif';
    g.textBaseline = 'bottom';
    let free = 0;
    for (let i = a; i <= b; i++) {
      const text = dur(2 ** (i / 2));
      const x = (i - a) * step;
      if (x >= free && x + g.measureText(text).width < w) {
        g.fillText(text, x, hgt - 2);
        free = x + g.measureText(text).width + 14;
      }
    }
  }
}
