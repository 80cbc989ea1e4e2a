// How calls look: what their colours tell, and which kinds of them are shown.

import { able } from './able';
import { h, menu, say } from './dom';
import { theme } from './color';
import { ColorBy, kindFill } from './model';
import { Timeline } from './timeline';

const kindWords: [string, string][] = [['native', 'native code'], ['go', 'Go'], ['python', 'Python'], ['java', 'Java'], ['js', 'JavaScript'], ['kernel', 'the kernel']];
const colorWords: [ColorBy, string][] = [['function', 'function'], ['module', 'module'], ['kind', 'kind of code']];

export class Look {
  readonly button = h('button', { class: 'small', title: 'What colours tell, and which kinds of code are shown' }, 'View');
  onChange = (_kinds: boolean): void => {};

  constructor(private v: Timeline) {
    menu(this.button, () => this.items());
  }

  // kinds are those that are shown; all of them if '' is.
  private shown(kind: string): boolean {
    return !this.v.conn.kinds || this.v.conn.kinds.split(',').includes(kind);
  }

  // color has colours tell something.
  color(by: ColorBy): void {
    this.v.model.recolor(by);
    this.v.wake();
    this.onChange(false);
  }

  // kinds shows calls of these kinds alone: a comma list, '' all.
  kinds(list: string): void {
    const known = kindWords.map(([k]) => k);
    const want = list.split(',').filter((k) => known.includes(k));
    this.v.sift(want.length === known.length ? '' : known.filter((k) => want.includes(k)).join());
    this.button.setAttribute('aria-pressed', String(this.v.conn.kinds !== ''));
    this.onChange(true);
  }

  private toggle(kind: string): void {
    if (!this.v.conn.up) return; // what is shown would be gone, and nothing come for it
    const now = kindWords.map(([k]) => k).filter((k) => this.shown(k) !== (k === kind));
    const there = now.filter((k) => this.v.model.kinds.has(k));
    if (!there.length) return say('one kind has to stay');
    this.kinds(now.join());
    say(this.shown(kind) ? `${kind} is shown` : `${kind} is left out`);
  }

  private items(): HTMLElement[] {
    const m = this.v.model;
    const out: HTMLElement[] = [h('div', { class: 'soft pad', role: 'presentation' }, 'Colours tell the')];
    for (const [by, word] of colorWords) {
      out.push(h('button', { role: 'menuitemradio', 'aria-checked': String(m.colorBy === by), onclick: () => this.color(by) }, word));
    }
    const kinds = kindWords.filter(([k]) => m.kinds.has(k) || !this.shown(k));
    if (kinds.length < 2) return out;
    out.push(h('div', { class: 'soft pad', role: 'presentation' }, 'Calls are shown that are'));
    for (const [k, word] of kinds) {
      const fill = theme().fills[kindFill(k)];
      out.push(able(h('button', { role: 'menuitemcheckbox', 'aria-checked': String(this.shown(k)), onclick: () => this.toggle(k) },
        m.colorBy === 'kind' ? h('i', { class: 'swatch', style: { background: fill } }) : null, word), ''));
    }
    return out;
  }
}
