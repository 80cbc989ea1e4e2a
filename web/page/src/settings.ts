// Settings of this browser, and links to the source that one of them makes.

// setting reads or keeps a setting; '' where there is none, or none may be kept.
export function setting(key: string, value?: string): string {
  try {
    if (value !== undefined) localStorage.setItem(`sliver.${key}`, value);
    return localStorage.getItem(`sliver.${key}`) ?? '';
  } catch {
    return '';
  }
}

export const editorExample = 'vscode://file{file}:{line}';

// editorProblem says why a pattern cannot make links; '' if it can.
export function editorProblem(pattern: string): string {
  if (!pattern) return '';
  if (!pattern.includes('{file}')) return `"${pattern}" has no {file}; example: ${editorExample}`;
  const scheme = /^([a-z][a-z0-9+.-]*):/i.exec(pattern)?.[1]?.toLowerCase();
  if (!scheme || ['javascript', 'data', 'blob', 'vbscript'].includes(scheme))
    return `"${pattern}" does not begin with the scheme of an editor; example: ${editorExample}`;
  return '';
}

// sourceLink is the address that opens a place in the user's editor; '' where there is none: no editor is
// set, or the path is not absolute.
export function sourceLink(file?: string, line?: number, pattern = setting('editor')): string {
  if (!pattern || editorProblem(pattern) || !file?.startsWith('/')) return '';
  // The path comes from the recorded program: nothing of it may become another part of the address.
  const path = file.split('/').map(encodeURIComponent).join('/');
  return pattern.replaceAll('{file}', () => path).replaceAll('{line}', () => String(line || 1));
}
