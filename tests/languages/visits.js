// Counts the pages of each visitor, in a map. With `bye` it tells all of them and forgets them; `forget PAGE` makes it forget one, and a
// page that begins with `bad` it refuses, when it has counted it.

import { Operator, exported, map, text, u64 } from "./lockgate.js";

class Visits extends Operator {
  static tables = { pages: map("pages", text, u64) };

  process(record) {
    const page = String(record.value);
    if (page === "bye") {
      this.pages.entries().forEach(([seen, visits], place) => {
        this.emit(record.key, [record.key, ` ${place} ${seen} ${visits}`]);
      });
      return this.pages.clear();
    }
    if (page.startsWith("forget ")) return this.pages.delete(page.slice("forget ".length));
    this.pages.set(page, (this.pages.get(page) ?? 0n) + 1n);
    if (page.startsWith("bad")) throw new Error(`${this.pages.entries().length} pages, and one of them bad`);
  }
}

export const operator = exported(Visits, "visits", "0.1.0");
