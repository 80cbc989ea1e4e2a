// The page's frame is painted before the rest of it is set up: what is behind
// the import runs when it is asked for. The connection is made meanwhile.

import { meet } from './early';

let begun = false;

function begin(): void {
  if (begun) return;
  begun = true;
  void import('./main');
}

meet();
// A page that nobody sees gets no frames.
if (document.visibilityState === 'hidden') begin();
else {
  requestAnimationFrame(() => setTimeout(begin));
  setTimeout(begin, 150);
}
