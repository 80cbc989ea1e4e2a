// The filter of tracks by name.

// pattern is a text as a regular expression, or as the text itself if it is not one.
export function pattern(text: string): RegExp {
  try {
    return new RegExp(text, 'i');
  } catch {
    return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'), 'i');
  }
}

// nameFilter makes a test of names and TIDs from words: each must match, as a regular expression,
// as text if it is not one; a word that begins with "!" must not match.
export function nameFilter(text: string): (name: string, tid: number) => boolean {
  const tests = text
    .trim()
    .split(/\s+/)
    .filter((w) => w && w !== '!')
    .map((w) => {
      const not = w.startsWith('!');
      const word = not ? w.slice(1) : w;
      const p = pattern(word);
      return (s: string, tid: number): boolean => (p.test(s) || String(tid).includes(word)) !== not;
    });
  return (name, tid) => tests.every((t) => t(name, tid));
}
