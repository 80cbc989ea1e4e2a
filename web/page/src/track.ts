// The interfaces of tracks. A Band places, draws and requests tracks of one kind; the timeline goes through
// its bands and knows no kind.

import type { Wake } from './between';
import type { Mark } from './marks';
import type { Model, Row } from './model';
import type { Link, LockInfo, Where } from './proto';

// Kind is what a track is of. A note is not on a row: its flag is on the axis, its line crosses all tracks.
export type Kind = 'thread' | 'group' | 'process' | 'task' | 'counter' | 'lock' | 'file' | 'note';

// Track is one track of any kind, at y pixels from the top of all tracks, h pixels high.
export interface Track {
  readonly kind: Kind;
  readonly key: string; // unique among the tracks of its kind
  readonly title: string;
  readonly y: number;
  readonly h: number;
  // spot is what the track has at x of the canvas and y of the tracks; null: nothing.
  spot(x: number, y: number): Spot | null;
}

// Spot is what a track has at a point.
export interface Spot {
  readonly hit?: Hit; // a call, or a part of a lane, of a thread
  readonly lock?: LockInfo; // of a lock's track
  readonly holder?: number; // TID of the lock's holder; 0: not known
  readonly time?: Range; // what a double-click shows; without it a second click counts as another one
  readonly opens?: boolean; // a click shows hidden rows
  hover(x: number, y: number): void; // the pointer is there, at a point of the window
  click(): void;
}

// Band is a series of tracks of one kind or of kinds that belong together. It draws them all in one go, because
// passes over all tracks are much cheaper than one track after the other.
export interface Band {
  place(y: number): number; // puts the tracks below y and returns the height that they take
  tracks(from: number, to: number): Track[]; // those that touch these pixels of all tracks
  draw(g: CanvasRenderingContext2D): void;
  request(): boolean; // sends a query if the replies do not cover the view, and reports whether frames must go on for it
  settled(): boolean; // no reply is pending that the view needs
  reset(): void; // drops all replies, after a connection to another recording
}

export const ROW = 17;
export const MINI = 5;
export const HEAD = 22; // above the calls: state, lock, pauses

// part is full with some of the rows: what a deep stack begins with, and what goes deeper than
// the room of a track, have a line each that opens them.
export type Mode = 'part' | 'full' | 'compact' | 'strip';
// ThreadRows is the track of a thread. Of depth rows, those from skip up to skip+rows are drawn.
export interface ThreadRows {
  seq: number;
  y: number;
  h: number;
  mode: Mode;
  depth: number;
  skip: number;
  rows: number;
}

// rowHeight is that of a track's calls, in pixels.
export function rowHeight(m: Mode): number {
  return m === 'compact' ? MINI : ROW;
}

// firstRow is where a track's calls begin, below its top.
export function firstRow(t: ThreadRows): number {
  return HEAD + (t.skip ? ROW : 0);
}

// deeper is how many rows lie below those that are drawn.
export function deeper(t: ThreadRows): number {
  return t.mode === 'part' ? t.depth - t.skip - t.rows : 0;
}

let fingers: MediaQueryList | undefined;

// touch reports whether fingers point: labels then have larger buttons, below each other.
function touch(): boolean {
  fingers ??= matchMedia('(pointer: coarse)');
  return fingers.matches;
}

// heightOf is that of a whole track.
export function heightOf(t: ThreadRows): number {
  if (t.mode === 'strip') return Math.max(HEAD + 4, 34);
  return Math.max(firstRow(t) + t.rows * rowHeight(t.mode) + (deeper(t) ? ROW : 0) + 8, touch() ? 96 : 34);
}
// Hit is an item of a thread's track.
export interface Hit {
  seq: number;
  depth: number;
  row: Row;
  i: number;
  lane: boolean;
}
// An arrow leads from a thread that waits for a lock to its holder, or, without a lock, from a thread that ended
// the wait of another process to the one that waited. It bows to the left, by bow pixels; to the right (below 0) at
// the left edge.
export interface Arrow {
  from: number;
  to: number;
  x: number;
  y0: number;
  y1: number;
  bow: number;
  lock: string; // '': none
}
export interface Range {
  t0: number;
  t1: number;
}

// View is the part of the time and of the tracks that is drawn.
export interface View {
  readonly model: Model;
  readonly t0: number;
  readonly t1: number;
  readonly span: number;
  readonly width: number;
  readonly height: number;
  readonly top: number; // scroll
  readonly follow: boolean;
  readonly tracks: ThreadRows[];
  readonly chosen: Set<number>;
  readonly range: Range | null;
  readonly marks: readonly Mark[];
  readonly mark: (Range & { seq: number }) | null;
  readonly hover: Hit | null;
  readonly selected: Where | null;
  readonly hits: Uint8Array | null;
  readonly hideHits: boolean;
  readonly arrows: Arrow[]; // as drawn last
  readonly between: { readonly wakes: readonly Wake[] };
  x(t: number): number;
  rowY(t: ThreadRows, depth: number): number;
  track(seq: number): ThreadRows | undefined;
  near(w: Where): Hit | null;
}

// Stage is the timeline to its bands.
export interface Stage extends View {
  readonly conn: Link;
  readonly lit: number[] | undefined; // functions that are searched for
  mark: (Range & { seq: number }) | null;
  time(x: number): number;
  target(): Range; // that the view moves to
  layout(): void;
  wake(): void;
  scrollTo(top: number): void;
  onHover(hit: Hit | null, x: number, y: number): void;
  onSelect(hit: Hit | null): void;
}
