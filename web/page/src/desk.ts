// The interface of the analysis panel to its tabs.

import type { Analysis, TreeColumns } from './analysis';
import type { Flame } from './flame';
import type { Sorts } from './table';
import type { Timeline } from './timeline';
import type { Filter, Node, Weight } from './tree';

// Desk is what a tab reads of the panel, and how it draws into it.
export interface Desk {
  readonly v: Timeline;
  readonly body: HTMLElement; // that the tab fills
  readonly flame: Flame;
  readonly lower: Flame;
  readonly up: boolean; // graphs have their root at the bottom
  readonly sorts: Sorts;
  readonly weight: Weight;
  readonly idle: boolean; // idle waits are in the numbers
  readonly needle: string; // filter of names
  readonly analysis: Analysis | null; // of the scope
  root: Node | null; // its stacks by the weight
  problem: string; // that replaces the tab; '': none
  draw(): void;
  calmly(): void; // draws, after the click that a press announces
  changed(now: boolean): void; // the scope is another one
  args(): Record<string, unknown>; // of a query about the scope
  columns(t: TreeColumns): TreeColumns;
  filter(): Filter;
  amount(x: number): string; // of the weight
  empty(): string; // the text of a scope without a stack
  tools(...more: (HTMLElement | null)[]): HTMLElement;
  find(): HTMLElement; // field of needle
  weightPick(): HTMLElement;
  nameCell(name: string, func: number): HTMLElement;
  codeSwitch(root: Node): HTMLElement | null;
  fold(root: Node): ((k: Node) => boolean) | null;
}
