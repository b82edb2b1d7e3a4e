/** The end of a list that may have more items. */

import type { List } from "../api/list.ts";

export function ShowMore<T>({ list }: { list: List<T> }) {
  if (list.truncated) {
    return <p className="show-more soft">Some results are not shown. Narrow the filter to see them.</p>;
  }
  return list.showMore === null ? null : (
    <div className="show-more">
      <button type="button" onClick={list.showMore}>
        Show more
      </button>
    </div>
  );
}
