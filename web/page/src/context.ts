// The context menu of a call, a thread, or a lock.

import { el, h, popup, say } from './dom';
import { lockKey, lockName } from './format';
import type { LockInfo } from './proto';
import { sourceLink } from './settings';
import type { Timeline } from './timeline';
import type { Hit, Spot, Track } from './track';

export interface ContextActs {
  details(hit: Hit): void;
  find(name: string): void;
  callers(name: string): void;
  focus(name: string): void; // of the analysis
  hide(name: string): void; // from the analysis
  time(t0: number, t1: number): void; // selects a range
  lock(addr: string): void;
  note(t: number): void;
  changed(): void; // the choice of threads
}

const title = (text: string): HTMLElement => h('div', { class: 'soft pad', role: 'presentation' }, text);
const item = (text: string, act: () => void, key = ''): HTMLElement =>
  h('button', { role: 'menuitem', onclick: act }, text, key ? h('kbd', { class: 'right' }, key) : null);

export class Context {
  constructor(
    private v: Timeline,
    private act: ContextActs,
    middle: () => Hit | null,
  ) {
    const calls = el('calls');
    calls.addEventListener('contextmenu', (e) => {
      const r = calls.getBoundingClientRect();
      const [x, y] = [e.clientX - r.left, e.clientY - r.top];
      const items = this.at(x, y);
      items.push(item('Note at this time', () => act.note(v.time(x)), 'B'));
      e.preventDefault();
      this.show(items, e.clientX, e.clientY);
    });
    calls.addEventListener('keydown', (e) => {
      if (e.key !== 'ContextMenu' && !(e.key === 'F10' && e.shiftKey)) return;
      const hit = (v.selected && v.near(v.selected)) ?? middle();
      if (!hit) return;
      e.preventDefault();
      const r = calls.getBoundingClientRect();
      const t = v.track(hit.seq);
      const x = Math.min(Math.max(v.x(hit.row.start[hit.i]!), 0), v.width - 20);
      this.show([...this.call(hit), ...this.thread(hit.seq)], r.left + x, r.top + (t ? v.rowY(t, hit.depth) - v.top : 0) + 16);
    });
    const labels = el('labels');
    labels.addEventListener('contextmenu', (e) => {
      // Labels scroll at once, the canvas with its next frame.
      const items = this.track(v.on(e.clientY - labels.getBoundingClientRect().top));
      if (!items.length) return;
      e.preventDefault();
      this.show(items, e.clientX, e.clientY);
    });
  }

  private show(items: HTMLElement[], x: number, y: number): void {
    this.v.onHover(null, 0, 0);
    const before = document.activeElement as HTMLElement | null;
    popup(
      items,
      (m) => {
        m.style.left = `${Math.max(4, Math.min(x, innerWidth - m.offsetWidth - 4))}px`;
        m.style.top = `${Math.max(4, Math.min(y, innerHeight - m.offsetHeight - 4))}px`;
      },
      () => before?.focus({ preventScroll: true }),
    );
  }

  private at(x: number, y: number): HTMLElement[] {
    const v = this.v;
    const spot = v.spot(x, y);
    const { hit } = spot ?? {};
    if (hit) return [...(hit.lane ? this.span(hit) : this.call(hit)), ...this.thread(hit.seq)];
    return spot?.lock ? this.lock(spot, spot.lock) : this.track(v.at(y));
  }

  // track returns the actions on a whole track.
  private track(t: Track | undefined): HTMLElement[] {
    return t?.kind === 'thread' ? this.thread(Number(t.key)) : [];
  }

  private end(hit: Hit): number {
    return Math.min(hit.row.end[hit.i]!, this.v.model.edge());
  }

  private span(hit: Hit, key = ''): HTMLElement[] {
    const v = this.v;
    const [a, b] = [hit.row.start[hit.i]!, this.end(hit)];
    if (!(b > a)) return [];
    return [
      item('Zoom to it', () => {
        const pad = Math.max((b - a) * 0.05, 25);
        v.setFollow(false);
        v.show(a - pad, b + pad);
      }),
      item('Select its time', () => this.act.time(a, b), key),
    ];
  }

  private call(hit: Hit): HTMLElement[] {
    const { act } = this;
    const f = this.v.model.funcs[hit.row.value[hit.i]!];
    if (!f) return this.span(hit);
    const one = hit.row.count[hit.i] === 1;
    const link = sourceLink(f.file, f.line);
    return [
      title(one ? f.name : `${f.name}, the longest of ${hit.row.count[hit.i]}`),
      ...(one ? [item('Show where its time went', () => act.details(hit))] : []),
      ...this.span(hit),
      item('Find all its calls', () => act.find(f.name)),
      item('Callers and callees', () => act.callers(f.name)),
      item('Analyze only stacks through it', () => act.focus(f.name)),
      item('Hide it in the analysis', () => act.hide(f.name)),
      ...(link ? [h('a', { role: 'menuitem', href: link }, 'Open its source')] : []),
      item('Copy its name', () => {
        navigator.clipboard.writeText(f.name).then(
          () => say('copied'),
          () => say('cannot copy here'),
        );
      }),
    ];
  }

  private thread(seq: number): HTMLElement[] {
    const v = this.v;
    const t = v.model.threads.get(seq);
    if (!t) return [];
    const layout =
      (change: () => void): (() => void) =>
      () => {
        change();
        v.layout();
        this.act.changed();
      };
    const pinned = v.threads.order.pinned.includes(seq);
    const chosen = v.chosen.has(seq);
    const others = v.threads.listed.filter((k) => k !== seq);
    return [
      title(`${t.name || 'thread'} (${t.tid})`),
      item(
        chosen ? 'Analyze all threads' : 'Analyze only this thread',
        layout(() => {
          v.chosen.clear();
          if (!chosen) v.chosen.add(seq);
        }),
      ),
      item(
        pinned ? 'No longer keep on top' : 'Keep on top',
        layout(
          () => (v.threads.order.pinned = pinned ? v.threads.order.pinned.filter((s) => s !== seq) : [...v.threads.order.pinned, seq]),
        ),
      ),
      item(
        'Hide this thread',
        layout(() => {
          v.threads.hidden.add(seq);
          v.chosen.delete(seq);
        }),
      ),
      ...(others.length
        ? [
            item(
              'Hide all others',
              layout(() =>
                others.forEach((s) => {
                  v.threads.hidden.add(s);
                  v.chosen.delete(s);
                }),
              ),
            ),
          ]
        : []),
      ...(v.threads.hidden.size
        ? [
            item(
              `Show the hidden threads (${v.threads.hidden.size})`,
              layout(() => v.threads.hidden.clear()),
            ),
          ]
        : []),
    ];
  }

  private lock(spot: Spot, lock: LockInfo): HTMLElement[] {
    return [
      title(lockName(lock)),
      ...(spot.holder ? [item('Go to its holder', () => spot.click())] : []),
      item('Who held it, and where', () => this.act.lock(lockKey(lock))),
      item('Copy its address', () => {
        navigator.clipboard.writeText(lock.addr).then(
          () => say('copied'),
          () => say('cannot copy here'),
        );
      }),
    ];
  }
}
