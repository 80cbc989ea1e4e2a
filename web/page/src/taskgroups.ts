// The tracks of tasks of all processes: a group for each process that has tasks, which folds.

import { type Sort, type TaskAt, type TaskHit, Tasks, type TasksReply } from './tasks';
import type { Band, Stage, Track } from './track';
import { el } from './dom';

export class TaskGroups implements Band {
  onLayout = (): void => {};
  onChange = (): void => {}; // folded, or ordered
  onTask = (_: TaskAt): void => {};
  onSpan = (_: TaskHit, _at: { x: number; y: number } | null): void => {}; // hovered at a point of the window, or clicked
  private groups: Tasks[];
  private how: { open: boolean | undefined; sort: Sort } = { open: undefined, sort: '' };

  constructor(private v: Stage & { task: TaskAt | null }) {
    this.groups = [this.group()];
  }

  private group(process?: number): Tasks {
    const g = new Tasks(this.v, process);
    g.open = this.how.open;
    g.sort = this.how.sort;
    g.onLayout = () => {
      this.follow();
      this.onLayout();
    };
    g.onChange = () => {
      this.sort = g.sort;
      this.onChange();
    };
    g.onTask = (x) => this.onTask(x);
    g.onSpan = (x, at) => this.onSpan(x, at);
    return g;
  }

  // follow adds a group for each process that has tasks; the first group knows them.
  private follow(): void {
    for (const p of this.first.head?.processes ?? []) if (!this.groups.some((g) => g.process === p)) this.groups.push(this.group(p));
  }

  private get first(): Tasks {
    return this.groups[0]!;
  }

  // head describes the tasks of the first group, those of the busiest process.
  get head(): TasksReply | null {
    return this.first.head;
  }

  get count(): number {
    return this.groups.reduce((n, g) => n + (g.head?.count ?? 0), 0);
  }

  get rows(): number {
    return this.groups.reduce((n, g) => n + g.rows, 0);
  }

  get unfolded(): boolean {
    return this.groups.some((g) => g.unfolded);
  }

  get open(): boolean | undefined {
    return this.first.open;
  }

  // A change from outside, as by an address, is for all groups.
  set open(open: boolean | undefined) {
    this.how.open = open;
    for (const g of this.groups) g.open = open;
  }

  get sort(): Sort {
    return this.how.sort;
  }

  set sort(sort: Sort) {
    this.how.sort = sort;
    for (const g of this.groups) g.sort = sort;
  }

  private of(process?: number): Tasks {
    return this.groups.find((g) => g.process === process) ?? this.first;
  }

  // show brings a row of a process into view.
  show(row: number, process?: number): void {
    this.of(process).show(row);
  }

  text(x: TaskHit): string[] {
    return this.of(x.process).text(x);
  }

  hit(x: number, y: number): TaskHit | null {
    for (const g of this.groups) {
      const hit = g.hit(x, y);
      if (hit) return hit;
    }
    return null;
  }

  place(y: number): number {
    const height = this.groups.reduce((all, g) => all + g.place(y + all), 0);
    el('tasks').hidden = !height;
    return height;
  }

  tracks(from: number, to: number): Track[] {
    return this.groups.flatMap((g) => g.tracks(from, to));
  }

  draw(g: CanvasRenderingContext2D): void {
    for (const x of this.groups) x.draw(g);
  }

  request(): boolean {
    this.follow();
    return this.groups.map((g) => g.request()).includes(true);
  }

  settled(): boolean {
    return this.groups.every((g) => g.settled());
  }

  reset(): void {
    for (const g of this.groups) g.remove();
    this.groups = [this.group()];
  }
}
