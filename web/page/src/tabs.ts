// The tabs of the analysis panel.

export const tabs = ['overview', 'flame', 'tree', 'functions', 'waits', 'locks', 'io', 'compare', 'notes'] as const;
export type Tab = (typeof tabs)[number];
export const tabWords: Record<Tab, string> = {
  overview: 'Overview',
  flame: 'Flame graph',
  tree: 'Call tree',
  functions: 'Functions',
  waits: 'Waits',
  locks: 'Locks',
  io: 'I/O',
  compare: 'Compare',
  notes: 'Notes',
};
