"""Tables with a client column: files and data frames to federated data, and the record that encodes a later file.

========================  =============================================================================================
`reading`, `csv_files`    where tables come from: files, several files, data frames; separators and encodings
`cells`, `dates`          what texts stand for
`kinds`                   what a column holds
`options`, `choosing`     what can be said about a table, and which columns become features
`survey`, `dividing`      the table as a whole: roles, clients, labels, split, with every problem it has
`doubts`                  what is probably a mistake, and used as it is
`encoding`                the record of what was decided
`fitting`, `applying`     the record from training rows; features and labels by it
`table`, `inspection`     `from_table`, `encode_table`, `inspect_table`
========================  =============================================================================================
"""

from majorant.data.tabular.encoding import CategoryColumn, DateColumn, Encoding, LabelRecord, NumberColumn
from majorant.data.tabular.inspection import TableReport, check_header, inspect_table
from majorant.data.tabular.problems import Problem, TableError, TableNotice
from majorant.data.tabular.table import encode_table, from_table

__all__ = [
    "CategoryColumn",
    "DateColumn",
    "Encoding",
    "LabelRecord",
    "NumberColumn",
    "Problem",
    "TableError",
    "TableNotice",
    "TableReport",
    "check_header",
    "encode_table",
    "from_table",
    "inspect_table",
]
