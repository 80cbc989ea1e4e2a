// The page's frame is painted before the rest of it is set up: the code behind
// the import runs later. The connection is made at the same time.

import { meet } from './early';

let begun = false;

function begin(): void {
  if (begun) return;
  begun = true;
  void import('./main');
}

meet();
// A hidden page gets no frames.
if (document.visibilityState === 'hidden') begin();
else {
  requestAnimationFrame(() => setTimeout(begin));
  setTimeout(begin, 150);
}
