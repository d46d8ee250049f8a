"""Write docs/engine.md anew: its tables, from a run of its own program."""

from tests.engine.page.tables import TABLES
from tests.engine.page.walk import PAGE, written

PAGE.write_text(written(PAGE.read_text(), TABLES))
