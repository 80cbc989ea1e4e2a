// Notes on the timeline: a flag with the text on the axis, and a line over all tracks.

import { theme } from './color';
import type { Mark } from './marks';
import type { Band, Spot, Track, View } from './track';

// Flag is where the text of a mark is on the axis; width 0: it has no room.
interface Flag {
  x: number;
  width: number;
  mark: Mark;
}

const widest = 160; // px of a flag
const drawn = new WeakMap<View, Flag[]>(); // last

function flags(g: CanvasRenderingContext2D, v: View): Flag[] {
  const out: Flag[] = [];
  v.marks.forEach((m, k) => {
    const x = Math.round(v.x(m.t));
    if (x < -widest || x > v.width) return;
    const next = v.marks[k + 1];
    const room = Math.min(widest, (next ? v.x(next.t) : v.width) - x - 4);
    out.push({ x, width: room < 14 ? 0 : Math.min(room, g.measureText(m.text).width + 8), mark: m });
  });
  return out;
}

// drawLines draws a line at each mark over the tracks.
function drawLines(g: CanvasRenderingContext2D, v: View): void {
  g.fillStyle = theme().hit;
  for (const m of v.marks) {
    const x = Math.round(v.x(m.t));
    if (x >= 0 && x <= v.width) g.fillRect(x, 0, 1, v.height);
  }
}

// drawFlags draws the text of each mark on the axis. It returns a test for parts of the axis that have room left.
export function drawFlags(g: CanvasRenderingContext2D, v: View): (from: number, to: number) => boolean {
  const c = theme();
  const all = flags(g, v);
  drawn.set(v, all);
  for (const f of all) {
    g.fillStyle = c.hit;
    g.fillRect(f.x, 0, 2, 24);
    if (!f.width) continue;
    g.fillRect(f.x, 2, f.width, 17);
    g.save();
    g.beginPath();
    g.rect(f.x, 2, f.width - 2, 17);
    g.clip();
    g.fillStyle = c.dark ? '#1c0a14' : '#ffffff';
    g.fillText(f.mark.text, f.x + 4, 11);
    g.restore();
  }
  return (from, to) => !all.some((f) => from < f.x + Math.max(f.width, 2) && f.x < to);
}

// Notes is the band of notes. It takes no height: each note is a track of its own on the axis.
export class Notes implements Band {
  onNote = (_: Mark): void => {};

  constructor(private v: View) {}

  place(): number {
    return 0;
  }

  tracks(): Track[] {
    return [];
  }

  draw(g: CanvasRenderingContext2D): void {
    drawLines(g, this.v);
  }

  request(): boolean {
    return false;
  }

  settled(): boolean {
    return true;
  }

  reset(): void {}

  // flags are the notes on the axis as drawn last.
  flags(): Track[] {
    return (drawn.get(this.v) ?? []).map((f) => ({
      kind: 'note',
      key: String(f.mark.t),
      title: f.mark.text,
      y: 0,
      h: 24,
      spot: (x: number) => this.spot(f, x),
    }));
  }

  private spot(f: Flag, x: number): Spot | null {
    if (x < f.x - 2 || x > f.x + Math.max(f.width, 4)) return null;
    return { hover: () => {}, click: () => this.onNote(f.mark) };
  }
}
