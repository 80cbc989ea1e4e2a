// Search over functions, files, modules and threads.

import { h, say } from './dom';
import { count, dur } from './format';
import type { Hits } from './proto';
import type { Timeline } from './timeline';

export class Search {
  readonly box = h('div', { class: 'search', role: 'search' });
  readonly input = h('input', {
    type: 'search',
    placeholder: 'Search  /',
    'aria-label': 'Search functions, files, modules and threads; text, or a regular expression between slashes',
    spellcheck: 'false',
  });
  private out = h('output', { class: 'soft' });
  private hideButton = h('button', { class: 'small', hidden: true, title: 'Hide what matches instead of lighting it up' }, 'Hide');
  hits: Hits | null = null;
  onChange = (_: ((func: number, name: string) => boolean) | null): void => {};
  private timer = 0;
  private set = new Set<number>();
  private only: string | null = null; // the one name that is searched for
  private seen = 0;

  constructor(private v: Timeline) {
    this.box.append(this.input, this.out, this.hideButton);
    this.input.addEventListener('input', () => {
      this.only = null;
      clearTimeout(this.timer);
      this.timer = window.setTimeout(() => void this.run(), 120);
    });
    this.input.addEventListener('keydown', (e) => {
      e.stopPropagation();
      if (e.key === 'Escape') {
        if (this.input.value) this.text('');
        else this.input.blur();
      } else if (e.key === 'Enter') {
        clearTimeout(this.timer);
        void this.run().then(() => this.next(e.shiftKey ? -1 : 1));
      }
    });
    this.hideButton.addEventListener('click', () => {
      this.v.hideHits = !this.v.hideHits;
      this.hideButton.setAttribute('aria-pressed', String(this.v.hideHits));
      this.v.wake();
    });
  }

  onNext = (_: { thread: number; depth: number; start: number }): void => {};

  // pattern is what the text means; null matches nothing.
  private pattern(): RegExp | null {
    const t = this.input.value.trim();
    if (!t) return null;
    const m = /^\/(.+)\/([i]?)$/.exec(t);
    this.input.setCustomValidity('');
    if (m) {
      try {
        return new RegExp(m[1]!, m[2]);
      } catch (e) {
        this.input.setCustomValidity((e as Error).message);
        this.out.textContent = 'not a regular expression';
        return null;
      }
    }
    return new RegExp(t.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
  }

  text(s: string): void {
    this.input.value = s;
    this.only = null;
    void this.run();
  }

  func(id: number): void {
    this.exact(this.v.model.funcs[id]?.name ?? '');
  }

  // exact searches for functions of that name.
  exact(name: string): void {
    this.input.value = name;
    this.only = name;
    void this.run();
  }

  // again repeats the search after new functions or names.
  again(): void {
    if (this.input.value && this.seen !== this.v.model.namesVersion) void this.run();
  }

  async run(): Promise<void> {
    const v = this.v;
    const m = v.model;
    this.seen = m.namesVersion;
    const p = this.pattern();
    this.set.clear();
    this.hits = null;
    if (!p) {
      v.hits = null;
      v.lit = undefined;
      v.hideHits = false;
      this.hideButton.hidden = true;
      if (!this.input.value.trim()) this.out.textContent = '';
      this.onChange(null);
      v.wake();
      return;
    }
    const only = this.only;
    const lit = new Uint8Array(m.funcs.length + 4096);
    m.funcs.forEach((f, i) => {
      if (only !== null ? f.name === only : p.test(f.name) || (f.file && p.test(f.file)) || (f.module && p.test(f.module))) {
        lit[i] = 1;
        this.set.add(i);
      }
    });
    const threads = only === null ? [...m.threads.values()].filter((t) => p.test(t.name)) : [];
    v.hits = lit;
    v.lit = this.set.size ? [...this.set].slice(0, 20000) : undefined;
    this.hideButton.hidden = false;
    this.onChange((f) => lit[f] === 1);
    v.wake();
    const parts: string[] = [];
    if (threads.length) parts.push(`${count(threads.length)} thread${threads.length > 1 ? 's' : ''}`);
    if (this.set.size) {
      try {
        this.hits = await v.conn.ask<Hits>('hits', this.args());
        parts.unshift(
          `${count(this.hits.count)} call${this.hits.count === 1 ? '' : 's'}, ${dur(this.hits.total)}${v.range ? ' in the range' : ''}`,
        );
      } catch (e) {
        parts.push((e as Error).message);
      }
    }
    this.out.textContent = parts.join(' · ') || 'nothing found';
    say(this.out.textContent);
    if (!this.set.size && threads.length) {
      v.track(threads[0]!.seq) && v.scrollBy(v.track(threads[0]!.seq)!.y - v.top);
    }
  }

  // next goes to the following hit (-1: the one before): after the call that is
  // selected if that is one, else from where the view begins; round at the end.
  private async next(dir: 1 | -1): Promise<void> {
    const v = this.v;
    if (!this.set.size || !this.hits) return;
    const s = v.selected;
    const here = s && v.near(s);
    const near =
      s && here && this.set.has(here.row.value[here.i]!)
        ? s
        : { thread: -1, depth: -1, start: Math.round(Math.max(v.t0, v.range?.t0 ?? v.t0)) };
    try {
      const h = await v.conn.ask<Hits>('hits', {
        ...this.args(),
        near,
        ...(v.threads.listed.length < v.model.order.length ? { threads: v.threads.listed } : {}),
      });
      const to = dir > 0 ? (h.next ?? h.first) : (h.prev ?? h.last);
      if (to) this.onNext({ ...to });
    } catch (e) {
      this.out.textContent = (e as Error).message;
    }
  }

  private args(): Record<string, unknown> {
    const r = this.v.range;
    return { funcs: [...this.set].slice(0, 60000), ...(r ? { t0: Math.round(r.t0), t1: Math.round(r.t1) } : {}) };
  }
}
