"""Counts the pages of each visitor, in a map. With `bye` it tells all of them and forgets them; `forget PAGE` makes it forget one, and a
page that begins with `bad` it refuses, when it has counted it."""

import lockgate


class Visits(lockgate.Operator):
    pages = lockgate.Map("pages", lockgate.TEXT, lockgate.U64)

    def process(self, record):
        page, pages = record.value.decode(), self.pages
        if page == "bye":
            for place, (seen, visits) in enumerate(pages.items()):
                self.emit(record.key, b"%b %d %b %d" % (record.key, place, seen.encode(), visits))
            return pages.clear()
        if page.startswith("forget "):
            pages.pop(page.removeprefix("forget "), None)
            return
        pages[page] = pages.get(page, 0) + 1
        if page.startswith("bad"):
            raise ValueError(f"{len(pages)} pages, and one of them bad")


Operator = lockgate.export(Visits)
