// Columns as kvlab_widgets/columns.py writes them, made lists again.
const restored = told => {
  if (Array.isArray(told)) return told;
  if (told.delta) { let sum = 0; return told.delta.map(d => (sum += d) * told.by); }
  if (told.units) { const one = 10 ** told.digits; return restored(told.units).map(value => value / one); }
  if (told.written) { const one = 10 ** told.digits; return restored(told.written).map(value => (value / one).toFixed(told.digits)); }
  if (told.of) { const of = restored(told.of); let next = 0; return restored(told.back).map(back => back ? of[next - back] : of[next++]); }
  const which = restored(told.which ?? told.lengths), queue = column => { const values = restored(column); let i = 0; return () => values[i++]; };
  if (told.texts) {
    const parts = told.texts.map(text => text.split("\0")), numbers = told.numbers.map(slots => slots.map(queue));
    return which.map(kind => { let text = parts[kind][0]; numbers[kind].forEach((next, i) => { text += next() + parts[kind][i + 1]; }); return text; });
  }
  if (told.keys) {
    const values = Object.fromEntries(Object.entries(told.values).map(([key, column]) => [key, queue(column)]));
    return which.map(shape => Object.fromEntries(told.keys[shape].map(key => [key, values[key]()])));
  }
  if (told.rows) { const parts = told.rows.map(queue); return which.map(n => Array.from({ length: n }, () => parts.map(next => next()))); }
  const next = queue(told.values);
  return which.map(n => Array.from({ length: n }, next));
};
// Tables as kvlab_widgets/packing.py writes them: a column may be like another's, in the row that a column of its own names;
// an earlier row of the same key plus a difference; or what the chosen alternative says. "=" is the sum of the terms.
const tablesOf = told => {
  const made = Object.fromEntries(Object.keys(told).map(name => [name, {}]));
  const sum = terms => +Object.values(terms).reduce((a, b) => a + b, 0).toPrecision(6);
  const column = (table, name) => made[table][name] ??= summed(table, name, whole(table, told[table][name]));
  const whole = (table, one) => {
    if (one.like) {
      const [other, theirs, key, first] = one.like, values = column(other, theirs);
      return column(table, key).map(row => values[row - first]);
    }
    if (one.within) {
      const keys = column(table, one.within), last = new Map();
      return restored(one.more).map((more, i) => { const now = (last.get(keys[i]) ?? 0) + more; last.set(keys[i], now); return now; });
    }
    if (one.chosen) {
      const how = column(table, "chosen"), worker = column(table, "worker");
      return column(table, "alternatives").map((rows, i) => rows.find(row => row[0] === how[i] && row[1] === worker[i])?.[one.chosen] ?? null);
    }
    return restored(one);
  };
  const summed = (table, name, values) => {
    if (table === "actuals" && name === "seconds") { const terms = column(table, "terms"); return values.map((s, i) => s === "=" ? sum(terms[i]) : s); }
    if (name === "alternatives") for (const rows of values) for (const row of rows) if (row[2] === "=") row[2] = sum(row[3]);
    return values;
  };
  for (const [table, columns] of Object.entries(told)) for (const name of Object.keys(columns)) column(table, name);
  return made;
};
