// Groups of tracks: the threads of a pool have names that differ in numbers alone. A group has a line of its
// own, which folds its tracks.

import { theme } from './color';
import { count, percent } from './format';
import type { Model } from './model';
import type { View } from './track';

// Group is a group with its line at y.
export interface Group {
  role: string;
  seqs: number[];
  y: number;
  open: boolean;
}

export const groupHeight = 24;
const many = 8; // threads of a group that begins folded

// roleOf is the role that a thread has in telemetry, too: main, or its name with each number replaced by *.
export function roleOf(name: string, main = false): string {
  const role = name.replace(/[0-9]+/g, '*');
  return main ? 'main' : role === 'main' || role === 'other' ? `${role}*` : role;
}

export class Groups {
  on = false;
  heads: Group[] = []; // on the screen or beside it
  // changed holds the roles whose groups are not as at first: those of many threads folded, others open.
  readonly changed = new Set<string>();

  constructor(private model: Model) {}

  // arrange puts the threads of a role behind the first of them, and a group before those of a role with two
  // threads or more. Threads that are kept apart, as pinned ones, are in no group. Those of folded groups are left out.
  arrange(seqs: number[], apart: number[]): (Group | number)[] {
    this.heads = [];
    if (!this.on) return seqs;
    const roles = new Map<string, number[]>();
    for (const seq of seqs) {
      const t = this.model.threads.get(seq)!;
      const role = apart.includes(seq) ? `\0${seq}` : roleOf(t.name, t.main);
      const all = roles.get(role);
      if (all) all.push(seq);
      else roles.set(role, [seq]);
    }
    const out: (Group | number)[] = [];
    for (const [role, all] of roles) {
      if (all.length < 2) {
        out.push(...all);
        continue;
      }
      const g: Group = { role, seqs: all, y: 0, open: all.length <= many !== this.changed.has(role) };
      this.heads.push(g);
      out.push(g, ...(g.open ? all : []));
    }
    return out;
  }

  // key differs if the groups may.
  key(): string {
    return this.on ? this.model.order.map((s) => roleOf(this.model.threads.get(s)!.name)).join() : '';
  }

  // turn opens or folds a group.
  turn(g: Group): void {
    if (!this.changed.delete(g.role)) this.changed.add(g.role);
  }

  // uncover opens the group that hides a thread, and reports whether there is one.
  uncover(seq: number): boolean {
    const g = this.heads.find((x) => !x.open && x.seqs.includes(seq));
    if (g) this.turn(g);
    return !!g;
  }

  // text says what the threads of a group do in the time on the screen.
  text(g: Group): string {
    const shares = g.seqs.map((s) => this.model.share.get(s)).filter((x) => x !== undefined);
    const cpu = shares.reduce((a, b) => a + b, 0);
    return [
      `${count(g.seqs.length)} threads`,
      shares.length ? `CPU ${percent(cpu)}${cpu >= 0.01 ? `, at most ${percent(Math.max(...shares))} each` : ''}` : '',
    ]
      .filter((x) => x)
      .join(' · ');
  }

  draw(g: CanvasRenderingContext2D, v: View): void {
    const c = theme();
    for (const x of this.heads) {
      const y = x.y - v.top;
      if (y > v.height || y + groupHeight < 0) continue;
      g.fillStyle = c.panel;
      g.fillRect(0, y, v.width, groupHeight - 1);
      g.fillStyle = c.line;
      g.fillRect(0, y + groupHeight - 1, v.width, 1);
      g.fillStyle = c.soft;
      g.textBaseline = 'middle';
      g.fillText(this.text(x), 6, y + groupHeight / 2);
    }
  }
}
