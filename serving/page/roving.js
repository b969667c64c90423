/**
 * Arrow keys inside a list or a table, where Tab reaches one element only (the "roving tabindex" of the ARIA guide).
 */

/** Lets arrow keys, Home and End move the focus among `rows()`, an array of arrays of elements inside `root`. */
export function rove(root, rows) {
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const grid = rows();
    const row = grid.findIndex((elements) => elements.includes(event.target));
    if (row < 0) return;
    const [r, c] = moved(event.key, row, grid[row].indexOf(event.target), getComputedStyle(root).direction === "rtl");
    const next = grid[r]?.[c === Infinity ? grid[r].length - 1 : c];
    if (!next || next === event.target) return;
    event.preventDefault();
    next.focus();
  });
  root.addEventListener("focusin", (event) => {
    if (event.target.tabIndex === 0) return;
    for (const element of root.querySelectorAll('[tabindex="0"]')) element.tabIndex = -1;
    event.target.tabIndex = 0;
  });
}

/** Returns the row and the column to which a key leads. */
function moved(key, row, column, isRightToLeft) {
  const forwards = isRightToLeft ? -1 : 1;
  const places = {
    ArrowRight: [row, column + forwards],
    ArrowLeft: [row, column - forwards],
    ArrowDown: [row + 1, column],
    ArrowUp: [row - 1, column],
    Home: [row, 0],
    End: [row, Infinity],
  };
  return places[key] ?? [row, column];
}
