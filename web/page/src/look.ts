// Settings of the view: what colors show, which kinds of code are shown, what the mouse does.

import { able } from './able';
import { h, menu, say } from './dom';
import { theme } from './color';
import { ColorBy, kindFill } from './model';
import { Timeline } from './timeline';

const kindWords: [string, string][] = [['native', 'native code'], ['go', 'Go'], ['python', 'Python'], ['java', 'Java'], ['js', 'JavaScript'], ['kernel', 'the kernel']];
const colorWords: [ColorBy, string][] = [['state', 'state and module'], ['function', 'function'], ['module', 'module'], ['kind', 'kind of code']];

// store reads or keeps a setting of this browser; '' where there is none, or none may be kept.
function store(key: string, value?: string): string {
  try {
    if (value !== undefined) localStorage.setItem('sliver.' + key, value);
    return localStorage.getItem('sliver.' + key) ?? '';
  } catch {
    return '';
  }
}

export class Look {
  readonly button = h('button', { class: 'small', title: 'Colors, kinds of code, and what the mouse does' }, 'View');
  onChange = (_kinds: boolean): void => {};

  constructor(private v: Timeline) {
    if (store('gestures') === 'map') v.gestures = 'map';
    menu(this.button, () => this.items());
  }

  // shown reports whether calls of a kind are shown.
  private shown(kind: string): boolean {
    return !this.v.conn.kinds || this.v.conn.kinds.split(',').includes(kind);
  }

  // color makes colors show something.
  color(by: ColorBy): void {
    this.v.model.recolor(by);
    this.v.wake();
    this.onChange(false);
  }

  // kinds shows calls of these kinds only: a comma list; '' is all.
  kinds(list: string): void {
    const known = kindWords.map(([k]) => k);
    const want = list.split(',').filter((k) => known.includes(k));
    this.v.sift(want.length === known.length ? '' : known.filter((k) => want.includes(k)).join());
    this.button.setAttribute('aria-pressed', String(this.v.conn.kinds !== ''));
    this.onChange(true);
  }

  private toggle(kind: string): void {
    if (!this.v.conn.up) return; // the calls on the screen would go without a replacement
    const now = kindWords.map(([k]) => k).filter((k) => this.shown(k) !== (k === kind));
    const there = now.filter((k) => this.v.model.kinds.has(k));
    if (!there.length) return say('at least one kind must stay');
    this.kinds(now.join());
    say(this.shown(kind) ? `${kind} is shown` : `${kind} is left out`);
  }

  private items(): HTMLElement[] {
    const m = this.v.model;
    const out: HTMLElement[] = [h('div', { class: 'soft pad', role: 'presentation' }, 'Colors show')];
    for (const [by, word] of colorWords) {
      out.push(h('button', { role: 'menuitemradio', 'aria-checked': String(m.colorBy === by), onclick: () => this.color(by) }, word));
    }
    out.push(h('div', { class: 'soft pad', role: 'presentation' }, 'Mouse'));
    for (const [g, word] of [['perfetto', 'drag selects, wheel scrolls, Ctrl+wheel zooms'], ['map', 'drag moves, wheel zooms']] as const) {
      out.push(h('button', { role: 'menuitemradio', 'aria-checked': String(this.v.gestures === g), onclick: () => {
        this.v.gestures = g;
        store('gestures', g);
      } }, word));
    }
    if (!this.v.conn.sifts) return out;
    const kinds = kindWords.filter(([k]) => m.kinds.has(k) || !this.shown(k));
    if (kinds.length < 2) return out;
    out.push(h('div', { class: 'soft pad', role: 'presentation' }, 'Code that is shown'));
    for (const [k, word] of kinds) {
      const fill = theme().fills[kindFill(k)];
      out.push(able(h('button', { role: 'menuitemcheckbox', 'aria-checked': String(this.shown(k)), onclick: () => this.toggle(k) },
        m.colorBy === 'kind' ? h('i', { class: 'swatch', style: { background: fill } }) : null, word), ''));
    }
    return out;
  }
}
