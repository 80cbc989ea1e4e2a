// The order of the tracks: what each thread was seen to do decides it, unless the user arranged them.

import type { ThreadTime } from './analysis';
import type { Model } from './model';
import { launched } from './own';

const RAN = 0.01; // share of a CPU above which a thread counts as one that ran

export class Order {
  pinned: number[] = [];
  arranged: number[] = []; // by the user, as far as changed
  private ran = new Set<number>(); // threads that were seen to run
  private idle = new Set<number>(); // threads of a runtime's own that have nothing to do
  private scores = new Map<number, number>();

  constructor(private model: Model) {}

  // key takes in what the threads do now, except for those that are kept. It differs if the order may.
  key(kept: (seq: number) => boolean): string {
    const m = this.model;
    const time = m.edge() - m.from();
    let key = `${launched(m.kinds)},`;
    for (const s of m.order) {
      const t = m.threads.get(s)!;
      if (kept(s)) continue;
      if (t.cpu > RAN * time) this.ran.add(s);
      if (t.idle) this.idle.add(s);
      else if (this.idle.delete(s)) this.ran.add(s);
      key += `${s}:${t.depth}:${this.ran.has(s)}:${this.idle.has(s)},`;
    }
    return key;
  }

  // rate takes in how the threads spent the whole of a finished recording: tracks are in that order.
  rate(threads: ThreadTime[]): void {
    this.scores.clear();
    for (const t of threads) this.scores.set(t.seq, t.is_idle ? -1 : t.cpu + t.runnable + 0.5 * t.lock);
  }

  busy(seq: number): boolean {
    return this.ran.has(seq);
  }

  // rests reports whether a thread has only waited for work so far.
  rests(seq: number): boolean {
    return this.idle.has(seq) && !this.ran.has(seq);
  }

  // quiet reports whether a thread was on a CPU or waited for a lock for less than a hundredth of time.
  quiet(seq: number, time: number): boolean {
    return !this.ran.has(seq) && (this.scores.get(seq) ?? 1) < 0.01 * time;
  }

  // sorted is all threads in order: main first (not Java's launcher, which does nothing), then the threads that ran,
  // which they do from then on, and last those of a runtime's own that have nothing to do; of one rank
  // they go by their TID. What the user arranged stays before that.
  sorted(): number[] {
    const m = this.model;
    const rank = this.ranks();
    const known = new Set(m.order);
    const order = [...this.arranged.filter((s) => known.has(s)), ...m.order.filter((s) => !this.arranged.includes(s))];
    return order.sort((a, b) => {
      const r = rank.get(a)!;
      return (
        r - rank.get(b)! ||
        (r > 0 ? (this.scores.get(b) ?? 0) - (this.scores.get(a) ?? 0) || m.threads.get(a)!.tid - m.threads.get(b)!.tid : 0)
      );
    });
  }

  private ranks(): Map<number, number> {
    const rank = new Map<number, number>();
    const waits = launched(this.model.kinds); // main, for another thread's end
    for (const t of this.model.threads.values()) {
      const main = t.main && (this.ran.has(t.seq) || (!waits && !this.scores.size));
      rank.set(t.seq, main ? 0 : this.ran.has(t.seq) ? 1 : this.idle.has(t.seq) ? 3 : 2);
    }
    for (const s of this.arranged) rank.set(s, 0);
    for (const s of this.pinned) rank.set(s, -1);
    return rank;
  }
}
