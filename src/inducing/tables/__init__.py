"""Tables of mixed columns: read a file, train a model of a column, keep the model, and predict new rows.

    from inducing.tables import TableModel

    model = TableModel.fit(frame, target="price")
    model.predict(new_rows)

Frames of pandas and polars and tables of pyarrow are accepted (`pip install inducing[tables]`).
"""

try:
    import pyarrow as _pyarrow  # noqa: F401 — says what is missing before a module below needs it
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("inducing.tables needs pyarrow: pip install 'inducing[tables]'") from error

from inducing.tables.encoder import Encoder as Encoder
from inducing.tables.reading import read_table as read_table
from inducing.tables.table_model import TableModel as TableModel
from inducing.tables.writing import write_table as write_table
