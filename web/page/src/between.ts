// Waits of processes for each other, as arrows from the thread that ended a wait to the one that waited.

import type { Link } from './proto';
import type { Range, Stage } from './track';

export interface Wake {
  thread: number; // the one that waited
  begin: number;
  end: number;
  by: number; // the thread that ended the wait
  text: string;
}

const beside = 1; // times the view on each side that a reply covers
const retry = 1000; // ms after a failure, or after the last reply of a live recording

export class Between {
  wakes: Wake[] = []; // by end
  private covers: Range | null = null;
  private span = 0; // of the view that covers was asked for
  private busy = false;
  private failed = false;
  private complete = false; // no more can come
  private asked = -Infinity; // when the last reply or failure came

  constructor(private v: Stage) {}

  reset(): void {
    this.wakes = [];
    this.covers = null;
  }

  // request asks for those around the view if the last reply is about another one, or if more may have come.
  request(): void {
    const { v } = this;
    const conn: Link = v.conn;
    const processes = v.model.hello?.processes?.length ?? 0;
    const done = !!v.model.status?.done;
    if (processes < 2 || !conn.up || this.busy || ((this.failed || !done) && performance.now() - this.asked < retry)) return;
    const c = this.covers;
    // A much smaller view may have waits that were too short for the reply.
    if (this.complete && c && c.t0 <= v.t0 && c.t1 >= v.t1 && v.span > this.span / 3) return;
    const of = { t0: v.t0 - beside * v.span, t1: v.t1 + beside * v.span };
    const { span } = v;
    this.busy = true;
    conn.ask<{ arrows: Wake[] }>('arrows', { t0: Math.round(of.t0), t1: Math.round(of.t1) }).then(
      (r) => {
        this.busy = false;
        this.failed = false;
        this.asked = performance.now();
        this.complete = done;
        this.covers = of;
        this.span = span;
        this.wakes = r.arrows;
        v.wake();
      },
      () => {
        this.busy = false;
        this.failed = true;
        this.asked = performance.now();
      },
    );
  }
}
