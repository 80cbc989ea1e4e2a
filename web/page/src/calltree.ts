// The call tree as rows that open: from the outermost calls down, or from functions up to their callers.

import { h } from './dom';
import { percent } from './format';
import { type Folded, pathOf } from './mycode';
import type { Node } from './tree';

export interface TreeOptions {
  root: Folded;
  fold: ((open: (path: string) => boolean) => Folded) | null; // makes the root with frames folded, except for those at open paths
  amount: (v: number) => string;
  onName: (name: string) => void;
  own: (func: number) => boolean; // the program's own code
}

const first = 2000; // rows of an opened node, at most

// bottomUp turns a tree around: below each function with self time are its callers.
export function bottomUp(root: Node): Node {
  const out: Node = { ...root, kids: [], self: 0 };
  const tops = new Map<string, Node>();
  const child = (p: Node, k: Node, index: Map<string, Node> | null): Node => {
    let c = index ? index.get(k.name) : p.kids.find((x) => x.name === k.name);
    if (!c) {
      c = { ...k, kids: [], parent: p, value: 0, self: 0, count: 0 };
      p.kids.push(c);
      index?.set(k.name, c);
    }
    return c;
  };
  const walk = (k: Node): void => {
    if (k.self > 0 && k.parent) {
      let at = child(out, k, tops);
      at.value += k.self;
      at.self += k.self;
      for (let p = k.parent; p?.parent; p = p.parent) {
        at = child(at, p, null);
        at.value += k.self;
      }
    }
    for (const x of k.kids) walk(x);
  };
  walk(root);
  return out;
}

// CallTree is a tree grid: arrow keys walk and open, Enter lights up the calls.
export class CallTree {
  readonly box = h('div', { class: 'scroll' });
  private body = h('tbody');
  private o: TreeOptions | null = null;
  private open = new Set<string>();
  private unfolded = new Set<string>(); // rows whose folded callees are shown

  constructor() {
    this.box.append(
      h(
        'table',
        { class: 'grid calltree', role: 'treegrid' },
        h('caption', { class: 'away' }, 'Call tree'),
        h(
          'thead',
          null,
          h(
            'tr',
            null,
            h('th', { scope: 'col' }, 'Total'),
            h('th', { scope: 'col' }, '%'),
            h('th', { scope: 'col' }, 'Self'),
            h('th', { scope: 'col' }, 'Function'),
          ),
        ),
        this.body,
      ),
    );
    this.body.addEventListener('keydown', (e) => this.key(e));
  }

  set(o: TreeOptions): void {
    this.o = o;
    // The heaviest path is open at first.
    this.open.clear();
    let path = '';
    for (let k: Folded | undefined = this.root(), i = 0; k && i < 60; i++) {
      const next: Folded | undefined = [...k.kids].sort((a, b) => b.value - a.value)[0];
      if (!next || next.value < 0.5 * o.root.value) break;
      path = pathOf(path, next);
      this.open.add(path);
      k = next;
    }
    this.draw();
  }

  private root(): Folded {
    const o = this.o!;
    return o.fold ? o.fold((path) => this.unfolded.has(path)) : o.root;
  }

  private unfold(path: string): void {
    if (!this.unfolded.delete(path)) this.unfolded.add(path);
    this.open.add(path);
    this.draw();
    this.focus(path);
  }

  private focus(path: string): void {
    for (const tr of this.body.children) if ((tr as HTMLElement).dataset.path === path) (tr as HTMLElement).focus();
  }

  private draw(): void {
    const o = this.o!;
    const root = this.root();
    const rows: HTMLElement[] = [];
    const add = (k: Folded, depth: number, path: string): void => {
      const is = this.open.has(path);
      const tr = h(
        'tr',
        { 'aria-level': depth + 1, 'aria-expanded': k.kids.length ? String(is) : null, tabindex: rows.length ? -1 : 0, 'data-path': path },
        h('td', { class: 'num' }, o.amount(k.value)),
        h('td', { class: 'num' }, percent(k.value / (o.root.value || 1))),
        h('td', { class: 'num' }, k.self ? o.amount(k.self) : ''),
        h(
          'td',
          null,
          h(
            'span',
            { class: 'fn', style: { 'padding-left': `${Math.min(depth, 40) * 14}px` } },
            k.kids.length
              ? h(
                  'button',
                  { class: 'icon twist', tabindex: -1, 'aria-label': is ? 'Close' : 'Open', onclick: () => this.toggle(path) },
                  is ? '▾' : '▸',
                )
              : h('span', { class: 'twist' }),
            k.func >= 0
              ? h(
                  'button',
                  {
                    class: `link${o.own(k.func) ? '' : ' foreign'}`,
                    tabindex: -1,
                    title: `${k.name}: light up its calls`,
                    onclick: () => o.onName(k.name),
                  },
                  k.name,
                )
              : h('span', null, k.name),
            this.more(k, path),
          ),
        ),
      );
      rows.push(tr);
      if (!is || rows.length > first) return;
      for (const x of [...k.kids].sort((a, b) => b.value - a.value)) add(x, depth + 1, pathOf(path, x));
    };
    for (const k of [...root.kids].sort((a, b) => b.value - a.value)) add(k, 0, pathOf('', k));
    this.body.replaceChildren(...rows);
  }

  private toggle(path: string): void {
    if (!this.open.delete(path)) this.open.add(path);
    this.draw();
    this.focus(path);
  }

  // more is the button that shows the frames that a row has taken in, or folds them again.
  private more(k: Folded, path: string): HTMLElement | null {
    const is = this.unfolded.has(path);
    if (!this.o?.fold || (!k.rows && !is)) return null;
    const title = is
      ? "Fold the frames below it that are not the program's own"
      : `Show ${k.rows} folded frame${k.rows === 1 ? '' : 's'} of libraries, of the runtime, or of recursion`;
    return h(
      'button',
      {
        class: 'small quiet',
        tabindex: -1,
        title,
        'aria-label': `${is ? 'fold' : `+${k.rows}`}: ${title}`,
        onclick: () => this.unfold(path),
      },
      is ? 'fold' : `+${k.rows}`,
    );
  }

  private key(e: KeyboardEvent): void {
    const tr = (e.target as HTMLElement).closest('tr');
    if (!tr) return;
    const path = tr.dataset.path!;
    const go = (x: Element | null): void => (x as HTMLElement | null)?.focus();
    if (e.key === 'ArrowDown') go(tr.nextElementSibling);
    else if (e.key === 'ArrowUp') go(tr.previousElementSibling);
    else if (e.key === 'ArrowRight') this.open.has(path) ? go(tr.nextElementSibling) : this.toggle(path);
    else if (e.key === 'ArrowLeft')
      this.open.has(path)
        ? this.toggle(path)
        : go([...this.body.children].find((x) => (x as HTMLElement).dataset.path === path.slice(0, path.lastIndexOf('\0'))) ?? null);
    else if (e.key === '+' || e.key === '-') tr.querySelector<HTMLElement>('.quiet')?.click();
    else if (e.key === 'Enter') tr.querySelector<HTMLElement>('.link')?.click();
    else return;
    e.preventDefault();
    e.stopPropagation();
  }
}
