"""Models of tables with mixed columns: read a file, train a model of a column, save it, and predict new rows.

    from inducing.tables import TableModel

    model = TableModel.fit(frame, target="price")
    model.predict(new_rows)

Data frames of pandas and polars and pyarrow tables are accepted (`pip install inducing[tables]`).
"""

try:
    import pyarrow as _pyarrow  # noqa: F401 — for a clear error before other modules import it
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("inducing.tables needs pyarrow: pip install 'inducing[tables]'") from error

from inducing.tables.encoder import Encoder as Encoder
from inducing.tables.reading import read_table as read_table
from inducing.tables.table_model import TableModel as TableModel
from inducing.tables.writing import write_table as write_table
