// What the tracks are to those who place, draw and point at them.

import { Model, Row } from './model';
import { Mark } from './marks';
import { Where } from './proto';

export const ROW = 17;
export const MINI = 5;
export const HEAD = 22; // above the calls: state, lock, pauses

// part is full with some of the rows: what a deep stack begins with, and what goes deeper than
// the room of a track, have a line each that opens them.
export type Mode = 'part' | 'full' | 'compact' | 'strip';
// Of depth rows, those from skip up to skip+rows are drawn.
export interface Track { seq: number; y: number; h: number; mode: Mode; depth: number; skip: number; rows: number }

// rowHeight is that of a track's calls, in pixels.
export function rowHeight(m: Mode): number {
  return m === 'compact' ? MINI : ROW;
}

// firstRow is where a track's calls begin, below its top.
export function firstRow(t: Track): number {
  return HEAD + (t.skip ? ROW : 0);
}

// deeper is how many rows lie below those that are drawn.
export function deeper(t: Track): number {
  return t.mode === 'part' ? t.depth - t.skip - t.rows : 0;
}

// heightOf is that of a whole track.
export function heightOf(t: Track): number {
  if (t.mode === 'strip') return Math.max(HEAD + 4, 34);
  return Math.max(firstRow(t) + t.rows * rowHeight(t.mode) + (deeper(t) ? ROW : 0) + 8, 34);
}
export interface Hit { seq: number; depth: number; row: Row; i: number; lane: boolean }
// An arrow leads from a thread that waits for a lock to its holder. It bows to the left,
// away from the wait, by bow pixels; to the right (below 0) at the left edge.
export interface Arrow { from: number; to: number; x: number; y0: number; y1: number; bow: number; lock: string }
export interface Range { t0: number; t1: number }

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
  readonly tracks: Track[];
  readonly chosen: Set<number>;
  readonly range: Range | null;
  readonly marks: readonly Mark[];
  readonly mark: (Range & { seq: number }) | null;
  readonly hover: Hit | null;
  readonly selected: Where | null;
  readonly hits: Uint8Array | null;
  readonly hideHits: boolean;
  readonly arrows: Arrow[]; // as drawn last
  x(t: number): number;
  rowY(t: Track, depth: number): number;
  track(seq: number): Track | undefined;
  near(w: Where): Hit | null;
}
