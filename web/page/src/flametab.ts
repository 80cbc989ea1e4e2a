// The tab of flame graphs: left-heavy, in the order of time, or the callers and callees of one function.

import { able } from './able';
import type { Desk } from './desk';
import { select } from './controls';
import { fill, h, say } from './dom';
import { folds } from './mycode';
import type { Tree } from './proto';
import { build, heavy, sandwich, table } from './tree';

export type Order = 'time' | 'heavy' | 'sandwich';

export class FlameTab {
  order: Order = 'heavy';
  picked = ''; // function in the middle of a sandwich
  byThread = false;
  up = false; // flame instead of icicle
  inTime: Tree | null = null;

  constructor(private d: Desk) {}

  draw(): void {
    let root = this.d.root!;
    const order = select<Order>(
      'Order',
      this.order,
      [
        ['heavy', 'left-heavy'],
        ['time', 'time-ordered'],
        ['sandwich', 'sandwich'],
      ],
      (o) => {
        this.order = o;
        this.d.draw();
      },
    );
    const up = h(
      'button',
      {
        class: 'small',
        hidden: this.order === 'sandwich',
        'aria-pressed': String(this.up),
        onclick: () => {
          this.up = !this.up;
          this.d.draw();
        },
      },
      this.up ? 'Flame ▲' : 'Icicle ▼',
    );
    const by = able(
      h(
        'button',
        {
          class: 'small',
          'aria-pressed': String(this.byThread),
          onclick: () => {
            this.byThread = !this.byThread;
            this.d.changed(true);
          },
        },
        'By thread',
      ),
      'A graph for each thread beside the others',
    );
    const tools = this.d.tools(order, up, by, this.order === 'heavy' ? this.d.codeSwitch(root) : null);
    if (this.order === 'time') {
      if (!this.inTime) {
        void this.loadInTime();
        fill(this.d.body, tools, h('p', { class: 'soft pad' }, 'Adding up…'));
        return;
      }
      const w = this.d.weight === 'lock' ? 'wait' : this.d.weight;
      root = build(this.inTime, w, (i) => this.d.v.model.funcs[i], this.d.filter());
    }
    if (!root.value) {
      fill(this.d.body, tools, h('p', { class: 'soft pad' }, this.d.empty()));
      return;
    }
    if (this.order === 'sandwich') {
      const rows = table(root).sort((a, b) => b.self - a.self);
      if (!rows.some((r) => r.name === this.picked)) this.picked = rows[0]?.name ?? '';
      const s = sandwich(root, this.picked);
      const pick = select(
        'Function',
        this.picked,
        rows.slice(0, 400).map((r) => [r.name, r.name] as [string, string]),
        (n) => {
          this.picked = n;
          this.d.draw();
        },
      );
      pick.classList.add('wide');
      this.d.flame.up = true;
      fill(
        this.d.body,
        h('div', { class: 'above' }, tools, h('div', { class: 'tools' }, pick)),
        h(
          'div',
          { class: 'sandwich' },
          h('h3', null, 'Its callers, the nearest at the bottom'),
          this.d.flame.box,
          h('h3', null, 'What it calls'),
          this.d.lower.box,
        ),
      );
      this.d.flame.set(s.callers, `Callers of ${this.picked}`);
      this.d.lower.set(s.callees, `Callees of ${this.picked}`);
      // The function is in the middle: its callers above, its callees below.
      this.d.body.scrollTop = this.d.lower.box.offsetTop - this.d.body.offsetTop - this.d.body.clientHeight * 0.6;
      return;
    }
    this.d.flame.up = this.up;
    if (this.order === 'heavy') {
      const own = this.d.fold(root);
      if (own) root = folds(root, own, () => false);
      heavy(root);
    }
    fill(this.d.body, tools, this.d.flame.box);
    this.d.flame.set(root, this.order === 'heavy' ? 'Flame graph, left-heavy' : 'Flame graph, in the order of time');
    this.d.body.scrollTop = this.up ? this.d.body.scrollHeight : 0;
  }

  private async loadInTime(): Promise<void> {
    try {
      this.inTime = await this.d.v.conn.ask<Tree>('tree', { ...this.d.args(), mode: 'time' });
    } catch (e) {
      say((e as Error).message);
      return;
    }
    this.d.calmly();
  }
}
