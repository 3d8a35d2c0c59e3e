/** The order of the rows of a table. Pure. */
export interface Column<Row> {
  name: string;
  value: (row: Row) => string | number;
}
export interface Order {
  column: string;
  isDescending: boolean;
}

/** The order after a click on the head of a column: numbers begin with the largest, names with the first. */
export function nextOrder<Row>(order: Order | null, column: Column<Row>, rows: Row[]): Order {
  if (order?.column === column.name)
    return { column: column.name, isDescending: !order.isDescending };
  const isNumber = rows.some((row) => typeof column.value(row) === "number");
  return { column: column.name, isDescending: isNumber };
}

export function sortRows<Row>(rows: Row[], columns: Column<Row>[], order: Order | null): Row[] {
  const column = columns.find(({ name }) => name === order?.column);
  if (!column || !order) return rows;
  const compare = (a: Row, b: Row): number => {
    const [first, second] = [column.value(a), column.value(b)];
    return typeof first === "number" && typeof second === "number"
      ? first - second
      : String(first).localeCompare(String(second), "en", { numeric: true });
  };
  return rows.toSorted((a, b) => (order.isDescending ? compare(b, a) : compare(a, b)));
}
