// The critical path of a finished recording of several processes: what the end of the first one waited for.

import type { Timeline } from './timeline';

// PathStep is a step of the path.
export interface PathStep {
  thread: number; // -1: it has no track
  name: string;
  pid: number;
  command?: string;
  begin: number;
  end: number;
  waiter?: string;
  how?: string;
}

export class CriticalPath {
  private all: PathStep[] = [];
  private asked = false;

  constructor(
    private v: Timeline,
    private came: () => void,
  ) {}

  // steps are those known so far: they are asked for once, and came is called when they are there.
  steps(): PathStep[] {
    const m = this.v.model;
    if (!this.asked && m.status?.done && (m.hello?.processes?.length ?? 0) > 1 && this.v.conn.up) {
      this.asked = true;
      this.v.conn.ask<{ steps: PathStep[] }>('path', {}).then(
        (r) => {
          this.all = r.steps;
          this.came();
        },
        () => {}, // a file to share has none
      );
    }
    return this.all;
  }
}
