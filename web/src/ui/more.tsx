/** The end of a list that may go on. */

import type { List } from "../api/list.ts";

export function More<T>({ list }: { list: List<T> }) {
  if (list.cut) {
    return <p className="more soft">There is more. Narrow it down to see the rest.</p>;
  }
  return list.more === null ? null : (
    <div className="more">
      <button type="button" onClick={list.more}>
        Show more
      </button>
    </div>
  );
}
