// Arrow for JavaScript as a peer. Called with a folder: reads every file that its list.txt names, and prints a line of
// JSON for each, {"name", "columns", "metadata"} or {"name", "error"}.
//
// Values are printed as they are stored: integers, also those of times and decimals; bytes as hexadecimal digits;
// structs as the list of their children, maps as pairs, unions as [type code, value]; infinities and NaN by their
// names, which Python's json reads. Dictionaries are printed decoded.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  CompressionType,
  IntervalUnit,
  RecordBatchReader,
  Type,
  UnionMode,
  Vector,
  compressionRegistry,
} from "apache-arrow";
import * as fzstd from "fzstd";
import lz4 from "lz4js";

// Arrow wants what is decompressed to start at a multiple of 8, as what slice() makes does.
compressionRegistry.set(CompressionType.LZ4_FRAME, { decode: (bytes) => lz4.decompress(bytes).slice() });
compressionRegistry.set(CompressionType.ZSTD, { decode: (bytes) => fzstd.decompress(bytes).slice() });

const hex = (bytes) => JSON.stringify(Buffer.from(bytes).toString("hex"));
const list = (items) => `[${items.join(",")}]`;
const rows = (vector) => Array.from({ length: vector.length }, (_, i) => print(vector, i));
const get = (data, i) => new Vector([data]).get(i);

// Signed integers of more than 32 bits, from their words of 32.
function wide(words) {
  const unsigned = [...words].reduceRight((sum, word) => (sum << 32n) | BigInt(word >>> 0), 0n);
  return String(BigInt.asIntN(32 * words.length, unsigned));
}

function float(data, i) {
  const value = get(data, i);
  return Object.is(value, -0) ? "-0.0" : String(value);
}

function stored({ values, stride }, i) {
  return stride === 1 ? String(values[i]) : list([...values.subarray(i * stride, (i + 1) * stride)].map(String));
}

// Months, days, and nanoseconds of two words.
function interval(data, i) {
  if (data.type.unit !== IntervalUnit.MONTH_DAY_NANO) return stored(data, i);
  const [months, days, ...nanoseconds] = get(data, i);
  return list([months, days, wide(nanoseconds)]);
}

function map({ valueOffsets, children: [entries] }, i) {
  const [keys, items] = entries.children.map((child) => new Vector([child]));
  const found = [];
  for (let k = valueOffsets[i]; k < valueOffsets[i + 1]; k++) found.push(list([print(keys, k), print(items, k)]));
  return list(found);
}

function union({ type, typeIds, valueOffsets, children }, i) {
  const code = typeIds[i];
  const child = new Vector([children[type.typeIdToChildIndex[code]]]);
  return list([code, print(child, type.mode === UnionMode.Dense ? valueOffsets[i] : i)]);
}

const text = (data, i) => JSON.stringify(get(data, i));
const bytes = (data, i) => hex(get(data, i));
const items = (data, i) => list(rows(get(data, i)));

const printers = {
  [Type.Null]: () => "null",
  [Type.Bool]: text,
  [Type.Int]: (data, i) => String(get(data, i)),
  [Type.Float]: float,
  [Type.Decimal]: ({ values, stride }, i) => wide(values.subarray(i * stride, (i + 1) * stride)),
  [Type.Date]: stored,
  [Type.Time]: stored,
  [Type.Timestamp]: stored,
  [Type.Duration]: stored,
  [Type.Interval]: interval,
  [Type.Utf8]: text,
  [Type.LargeUtf8]: text,
  [Type.Utf8View]: text,
  [Type.Binary]: bytes,
  [Type.LargeBinary]: bytes,
  [Type.BinaryView]: bytes,
  [Type.FixedSizeBinary]: bytes,
  [Type.List]: items,
  [Type.LargeList]: items,
  [Type.FixedSizeList]: items,
  [Type.Struct]: ({ children }, i) => list(children.map((child) => print(new Vector([child]), i))),
  [Type.Map]: map,
  [Type.Union]: union,
  [Type.Dictionary]: ({ dictionary, values }, i) => print(dictionary, Number(values[i])),
};

function print(vector, index) {
  let i = index;
  for (const data of vector.data) {
    if (i < data.length) return data.getValid(i) ? printers[data.typeId](data, i) : "null";
    i -= data.length;
  }
  throw new Error(`row ${index} of a vector of ${vector.length}`);
}

function read(bytes) {
  const reader = RecordBatchReader.from(bytes).open();
  const { schema } = reader; // gone when the last batch is read
  const columns = schema.fields.map(() => []);
  for (const batch of reader) {
    columns.forEach((column, k) => column.push(...rows(new Vector([batch.data.children[k]]))));
  }
  const metadata = [schema, ...schema.fields].map((part) => Object.fromEntries(part.metadata));
  return `"columns":${list(columns.map(list))},"metadata":${JSON.stringify(metadata)}`;
}

const folder = process.argv[2];
for (const name of readFileSync(join(folder, "list.txt"), "utf8").split("\n").filter(Boolean)) {
  let found;
  try {
    found = read(readFileSync(join(folder, name)));
  } catch (error) {
    found = `"error":${JSON.stringify(String(error))}`;
  }
  console.log(`{"name":${JSON.stringify(name)},${found}}`);
}
