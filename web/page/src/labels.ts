// The column of thread names: what each track is, and how to fold, pin, hide
// and order them.

import { el, fill, h, put, say } from './dom';
import { count, percent } from './format';
import type { Group } from './groups';
import type { Timeline } from './timeline';
import { deeper, type Mode, type ThreadRows } from './track';

interface Label {
  li: HTMLLIElement;
  name: HTMLButtonElement;
  sub: HTMLElement;
  fold: HTMLButtonElement;
  pin: HTMLButtonElement;
  more: HTMLButtonElement;
  bar: HTMLElement;
  text: string;
}

const next: Record<Mode, Mode> = { part: 'full', full: 'compact', compact: 'strip', strip: 'part' };
const sign: Record<Mode, string> = { part: '▾', full: '▾', compact: '▿', strip: '▸' };
const words: Record<Mode, string> = { part: 'the rows that there is room for', full: 'all rows', compact: 'thin rows', strip: 'folded' };

// Labels farther than this from the screen, in px, are not in the page: a list of 1,000 takes Chromium some 50 ms
// of each frame.
const beyond = 2000;

export class Labels {
  private all = new Map<number, Label>(); // those in the page
  private dragged = -1; // the thread whose label is
  private list = el('labels');
  onChange = (): void => {};

  constructor(private v: Timeline) {
    v.onLayout = () => this.update();
    v.onScroll = () => this.update();
    this.list.addEventListener(
      'wheel',
      (e) => {
        // The column scrolls as usual; the timeline beside it zooms.
        v.scrollBy(e.deltaY);
        e.preventDefault();
      },
      { passive: false },
    );
  }

  private make(seq: number): Label {
    const v = this.v;
    const change = (): void => {
      v.layout();
      this.onChange();
    };
    const mode = (): Mode => v.track(seq)?.mode ?? 'full';
    const fold = h('button', {
      class: 'icon',
      onclick: () => {
        v.threads.modes.set(seq, next[mode()]);
        change();
        say(words[mode()]);
      },
    });
    const name = h('button', {
      class: 'name',
      onclick: () => {
        if (v.chosen.has(seq)) v.chosen.delete(seq);
        else v.chosen.add(seq);
        change();
        if (v.range) v.onRange(v.range, true);
      },
    });
    const pin = h('button', {
      class: 'icon pin',
      onclick: () => {
        v.threads.order.pinned = v.threads.order.pinned.includes(seq)
          ? v.threads.order.pinned.filter((s) => s !== seq)
          : [...v.threads.order.pinned, seq];
        change();
      },
    });
    const hide = h(
      'button',
      {
        class: 'icon hide',
        title: 'Hide this thread',
        'aria-label': 'Hide this thread',
        onclick: () => {
          v.threads.hidden.add(seq);
          v.chosen.delete(seq);
          change();
        },
      },
      '×',
    );
    const sub = h('span', { class: 'sub' });
    const bar = h('i', { class: 'share' });
    const more = h('button', {
      class: 'rows',
      onclick: () => {
        v.threads.modes.set(seq, mode() === 'part' ? 'full' : 'part');
        change();
        say(words[mode()]);
      },
    });
    const li = h(
      'li',
      { draggable: 'true' },
      h('div', { class: 'row1' }, fold, name, pin, hide),
      h('div', { class: 'row2' }, sub),
      more,
      bar,
    );
    li.addEventListener('dragstart', (e) => {
      e.dataTransfer!.setData('text/x-sliver-thread', String(seq));
      e.dataTransfer!.effectAllowed = 'move';
      this.dragged = seq;
    });
    li.addEventListener('dragend', () => (this.dragged = -1));
    li.addEventListener('dragover', (e) => {
      if (e.dataTransfer!.types.includes('text/x-sliver-thread')) {
        e.preventDefault();
        li.classList.add('over');
      }
    });
    li.addEventListener('dragleave', () => li.classList.remove('over'));
    li.addEventListener('drop', (e) => {
      e.preventDefault();
      li.classList.remove('over');
      this.move(Number(e.dataTransfer!.getData('text/x-sliver-thread')), seq);
    });
    li.addEventListener('keydown', (e) => {
      if (!e.altKey || (e.key !== 'ArrowUp' && e.key !== 'ArrowDown')) return;
      e.preventDefault();
      e.stopPropagation();
      const i = v.tracks.findIndex((t) => t.seq === seq);
      const other = v.tracks[i + (e.key === 'ArrowUp' ? -1 : 1)];
      if (other) this.move(seq, other.seq);
      name.focus();
    });
    this.list.append(li);
    const l = { li, name, sub, fold, pin, more, bar, text: '' };
    this.all.set(seq, l);
    return l;
  }

  // move puts a thread in the place of another.
  move(seq: number, to: number): void {
    if (seq === to) return;
    const order = [...this.v.threads.listed];
    const from = order.indexOf(seq);
    const at = order.indexOf(to);
    if (from < 0 || at < 0) return;
    order.splice(from, 1);
    order.splice(at, 0, seq);
    this.v.threads.order.arranged = order;
    this.v.threads.order.pinned = [];
    this.v.layout();
    this.onChange();
  }

  update(): void {
    const v = this.v;
    const near = v.tracks.filter((t) => this.near(t));
    const shown = new Set(near.map((t) => t.seq));
    for (const [seq, l] of this.all) {
      if (!shown.has(seq)) {
        l.li.remove();
        this.all.delete(seq);
      }
    }
    this.heads();
    near.forEach((t) => {
      const l = this.all.get(t.seq) ?? this.make(t.seq);
      const i = v.model.threads.get(t.seq)!;
      const st = l.li.style;
      st.top = `${t.y}px`;
      st.height = `${t.h}px`;
      const share = v.model.share.get(t.seq);
      const cpu = share === undefined ? '' : `CPU ${percent(share)}`;
      const state = i.idle ? 'idle' : !v.model.hello?.live ? '' : i.ended ? 'ended' : v.model.live ? i.state : '';
      const tid = `${i.tid}${i.ns_tid && i.ns_tid !== i.tid ? ` (${i.ns_tid} inside)` : ''}`;
      const does = [cpu, state].filter(Boolean).join(' · ');
      const left = [t.skip ? `${t.skip} outer` : '', deeper(t) ? `${deeper(t)} deeper` : ''].filter(Boolean).join(', ');
      const text = [
        i.name,
        tid,
        does,
        t.mode,
        t.depth,
        t.rows,
        left,
        v.threads.deep(t),
        v.chosen.has(t.seq),
        v.threads.order.pinned.includes(t.seq),
      ].join('|');
      if (text === l.text) return;
      l.text = text;
      fill(l.name, i.name || 'thread');
      l.name.title = `${i.name} — TID ${i.tid}. Click to choose it for the selected range.`;
      l.name.setAttribute('aria-pressed', String(v.chosen.has(t.seq)));
      // On a narrow screen the first two are left out.
      fill(
        l.sub,
        h('span', { class: 'tid' }, tid, does ? ' · ' : ''),
        cpu ? h('span', { class: 'unit' }, 'CPU ') : null,
        cpu ? does.slice(4) : does,
      );
      fill(l.fold, sign[t.mode]);
      l.fold.title = `Shown with ${words[t.mode]}; click for ${words[next[t.mode]]}`;
      l.fold.setAttribute('aria-label', l.fold.title);
      l.more.hidden = t.mode !== 'part' && !(t.mode === 'full' && v.threads.deep(t));
      fill(l.more, t.mode === 'part' ? `+${t.depth - t.rows} rows` : 'fewer rows');
      l.more.title = t.mode === 'part' ? `Show all ${t.depth} rows: ${left}` : 'Show the rows that there is room for';
      l.more.setAttribute('aria-label', `${l.more.textContent}: ${l.more.title}`);
      const pinned = v.threads.order.pinned.includes(t.seq);
      fill(l.pin, pinned ? '★' : '☆');
      l.pin.title = pinned ? 'No longer keep on top' : 'Keep on top';
      l.pin.setAttribute('aria-label', l.pin.title);
      l.pin.setAttribute('aria-pressed', String(pinned));
      l.li.classList.toggle('pinned', pinned);
      l.li.classList.toggle('flat', t.mode === 'strip');
      l.li.classList.toggle('main', !!i.main);
      l.bar.style.width = `${Math.round((share ?? 0) * 100)}%`;
    });
    // Readers and the Tab key go through the list in the order on the screen.
    [
      ...v.threads.groups.heads.map((g) => ({ y: g.y, li: this.groups.get(g.role)! })),
      ...near.map((t) => ({ y: t.y, li: this.all.get(t.seq)!.li })),
    ]
      .sort((a, b) => a.y - b.y)
      .forEach(({ li }, k) => {
        if (this.list.children[k] !== li) this.list.insertBefore(li, this.list.children[k] ?? null);
      });
    this.corner();
  }

  // near says whether a track's label is in the page: one on the screen or beside it, or in use.
  private near(t: ThreadRows): boolean {
    if (t.y + t.h > this.v.top - beyond && t.y < this.v.top + this.v.height + beyond) return true;
    return t.seq === this.dragged || !!this.all.get(t.seq)?.li.contains(document.activeElement);
  }

  private groups = new Map<string, HTMLLIElement>(); // their lines, by role

  // heads renews the lines of groups.
  private heads(): void {
    const v = this.v;
    const there = new Set(v.threads.groups.heads.map((g) => g.role));
    for (const [role, li] of this.groups) {
      if (there.has(role)) continue;
      li.remove();
      this.groups.delete(role);
    }
    for (const g of v.threads.groups.heads) {
      let li = this.groups.get(g.role);
      if (!li) {
        const now = (): Group | undefined => v.threads.groups.heads.find((x) => x.role === g.role);
        const change = (): void => {
          v.layout();
          this.onChange();
        };
        const fold = h('button', {
          class: 'icon',
          onclick: () => {
            v.threads.groups.turn(now()!);
            change();
          },
        });
        const name = h(
          'button',
          {
            class: 'name',
            onclick: () => {
              const { seqs } = now()!;
              const all = seqs.every((s) => v.chosen.has(s));
              for (const s of seqs)
                if (all) v.chosen.delete(s);
                else v.chosen.add(s);
              change();
              if (v.range) v.onRange(v.range, true);
            },
          },
          g.title,
        );
        li = h('li', { class: 'group' }, h('div', { class: 'row1' }, fold, name));
        this.groups.set(g.role, li);
      }
      li.style.top = `${g.y}px`;
      const [fold, name] = li.querySelectorAll('button');
      if (name!.textContent !== g.title) fill(name!, g.title);
      fill(fold!, g.open ? '▾' : '▸');
      fold!.setAttribute('aria-expanded', String(g.open));
      const threads = `${count(g.seqs.length)} thread${g.seqs.length === 1 ? '' : 's'}`;
      fold!.setAttribute('aria-label', g.process === undefined ? `The ${threads} ${g.role}` : `The ${threads} of ${g.title}`);
      name!.title = `${threads}: ${this.about(g)}. Click to choose them for the analysis.`;
      name!.setAttribute('aria-pressed', String(g.seqs.every((s) => v.chosen.has(s))));
    }
  }

  // about describes a group: a process by its command line.
  private about(g: Group): string {
    const p = g.process === undefined ? undefined : this.v.model.hello?.processes?.[g.process];
    if (!p) return g.role;
    return `${p.cmdline?.join(' ') || p.comm}${p.ppid ? `, started by ${p.ppid}` : ''}${p.exit ? `, ${p.exit}` : ''}`;
  }

  private field: HTMLInputElement | null = null;
  private back: HTMLButtonElement | null = null;

  private corner(): void {
    if (!this.field) {
      this.field = h('input', {
        type: 'search',
        placeholder: 'Threads…',
        'aria-label': 'Show only threads whose name or TID matches',
        title: 'Text or regular expression; !text hides what matches; several words must all match',
        oninput: () => {
          this.v.threads.filter = this.field!.value;
          this.v.layout();
          this.onChange();
        },
      });
      this.back = h('button', {
        class: 'small',
        onclick: () => {
          this.v.threads.hidden.clear();
          this.v.layout();
          this.onChange();
        },
      });
      put(el('corner'), this.field, this.back);
    }
    if (document.activeElement !== this.field) this.field.value = this.v.threads.filter;
    const n = this.v.threads.hidden.size;
    this.back!.hidden = n === 0;
    fill(this.back!, `${n} hidden`);
    this.back!.title = 'Show the hidden threads again';
  }
}
