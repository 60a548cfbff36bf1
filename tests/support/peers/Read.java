// Spark's Java reader as a peer. Called with a folder: reads every file that its list.txt names, and prints a line of
// JSON for each, as read.mjs describes.
//
// Runs on Spark's own jars, and is compiled by the compiler that is among them, Janino, so that a runtime without javac
// will do. Janino does not infer types or take lambdas, hence the casts.

import java.io.ByteArrayInputStream;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.arrow.compression.CommonsCompressionFactory;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.*;
import org.apache.arrow.vector.complex.*;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.ipc.ArrowFileReader;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.arrow.vector.util.ByteArrayReadableSeekableByteChannel;

public class Read {
  private final ArrowReader reader;

  private Read(ArrowReader reader) {
    this.reader = reader;
  }

  private static String quote(String text) {
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < text.length(); i++) {
      char c = text.charAt(i);
      if (c < ' ' || c == '"' || c == '\\' || c > '~') {
        out.append(String.format("\\u%04x", new Object[] {Integer.valueOf(c)}));
      } else {
        out.append(c);
      }
    }
    return out.append('"').toString();
  }

  private static String hex(byte[] bytes) {
    StringBuilder out = new StringBuilder("\"");
    for (int i = 0; i < bytes.length; i++) {
      out.append(String.format("%02x", new Object[] {Integer.valueOf(bytes[i] & 0xff)}));
    }
    return out.append('"').toString();
  }

  private String rows(ValueVector vector, long start, long end) throws Exception {
    StringBuilder out = new StringBuilder("[");
    for (long i = start; i < end; i++) {
      out.append(i == start ? "" : ",").append(print(vector, (int) i));
    }
    return out.append("]").toString();
  }

  private String print(ValueVector vector, int i) throws Exception {
    if (vector.isNull(i)) {
      return "null";
    }
    if (vector.getField().getDictionary() != null) {
      Dictionary dictionary = reader.lookup(vector.getField().getDictionary().getId());
      return print(dictionary.getVector(), (int) ((BaseIntVector) vector).getValueAsLong(i));
    }
    return isNested(vector) ? nested(vector, i) : plain(vector, i);
  }

  private static boolean isNested(ValueVector vector) {
    return !vector.getField().getChildren().isEmpty() || vector instanceof StructVector || vector instanceof UnionVector;
  }

  private String plain(ValueVector vector, int i) throws Exception {
    if (vector instanceof BitVector) return ((BitVector) vector).get(i) == 0 ? "false" : "true";
    if (vector instanceof UInt8Vector) return ((UInt8Vector) vector).getObjectNoOverflow(i).toString();
    if (vector instanceof BaseIntVector) return String.valueOf(((BaseIntVector) vector).getValueAsLong(i));
    if (vector instanceof Float2Vector) return String.valueOf((double) ((Float2Vector) vector).getValueAsFloat(i));
    if (vector instanceof FloatingPointVector) {
      return String.valueOf(((FloatingPointVector) vector).getValueAsDouble(i));
    }
    if (vector instanceof DecimalVector || vector instanceof Decimal256Vector) {
      return ((BigDecimal) vector.getObject(i)).unscaledValue().toString();
    }
    if (vector instanceof DateDayVector) return String.valueOf(((DateDayVector) vector).get(i));
    if (vector instanceof DateMilliVector) return String.valueOf(((DateMilliVector) vector).get(i));
    if (vector instanceof TimeSecVector) return String.valueOf(((TimeSecVector) vector).get(i));
    if (vector instanceof TimeMilliVector) return String.valueOf(((TimeMilliVector) vector).get(i));
    if (vector instanceof TimeMicroVector) return String.valueOf(((TimeMicroVector) vector).get(i));
    if (vector instanceof TimeNanoVector) return String.valueOf(((TimeNanoVector) vector).get(i));
    if (vector instanceof TimeStampVector) return String.valueOf(((TimeStampVector) vector).get(i));
    if (vector instanceof DurationVector) return String.valueOf(DurationVector.get(vector.getDataBuffer(), i));
    if (vector instanceof IntervalYearVector) return String.valueOf(((IntervalYearVector) vector).get(i));
    if (vector instanceof IntervalDayVector) {
      int days = IntervalDayVector.getDays(vector.getDataBuffer(), i);
      return "[" + days + "," + IntervalDayVector.getMilliseconds(vector.getDataBuffer(), i) + "]";
    }
    if (vector instanceof IntervalMonthDayNanoVector) {
      int months = IntervalMonthDayNanoVector.getMonths(vector.getDataBuffer(), i);
      int days = IntervalMonthDayNanoVector.getDays(vector.getDataBuffer(), i);
      return "[" + months + "," + days + "," + IntervalMonthDayNanoVector.getNanoseconds(vector.getDataBuffer(), i) + "]";
    }
    Object value = vector.getObject(i);
    return value instanceof byte[] ? hex((byte[]) value) : quote(value.toString());
  }

  private String nested(ValueVector vector, int i) throws Exception {
    if (vector instanceof MapVector) {
      MapVector map = (MapVector) vector;
      StructVector entries = (StructVector) map.getDataVector();
      return rows(entries, map.getElementStartIndex(i), map.getElementEndIndex(i));
    }
    if (vector instanceof ListVector) {
      ListVector list = (ListVector) vector;
      return rows(list.getDataVector(), list.getElementStartIndex(i), list.getElementEndIndex(i));
    }
    if (vector instanceof LargeListVector) {
      LargeListVector list = (LargeListVector) vector;
      return rows(list.getDataVector(), list.getElementStartIndex(i), list.getElementEndIndex(i));
    }
    if (vector instanceof ListViewVector) {
      ListViewVector list = (ListViewVector) vector;
      return rows(list.getDataVector(), list.getElementStartIndex(i), list.getElementEndIndex(i));
    }
    if (vector instanceof LargeListViewVector) {
      LargeListViewVector list = (LargeListViewVector) vector;
      long start = list.getOffsetBuffer().getLong(8L * i);
      return rows(list.getDataVector(), start, start + list.getSizeBuffer().getLong(8L * i));
    }
    if (vector instanceof FixedSizeListVector) {
      FixedSizeListVector list = (FixedSizeListVector) vector;
      return rows(list.getDataVector(), (long) i * list.getListSize(), (i + 1L) * list.getListSize());
    }
    if (vector instanceof StructVector) {
      StringBuilder out = new StringBuilder("[");
      Iterator children = ((StructVector) vector).getChildrenFromFields().iterator();
      while (children.hasNext()) {
        out.append(out.length() == 1 ? "" : ",").append(print((ValueVector) children.next(), i));
      }
      return out.append("]").toString();
    }
    if (vector instanceof UnionVector) {
      UnionVector union = (UnionVector) vector;
      return "[" + union.getTypeValue(i) + "," + print(union.getVector(i), i) + "]";
    }
    if (vector instanceof DenseUnionVector) {
      DenseUnionVector union = (DenseUnionVector) vector;
      byte code = union.getTypeId(i);
      return "[" + code + "," + print(union.getVectorByType(code), union.getOffset(i)) + "]";
    }
    if (vector instanceof RunEndEncodedVector) {
      RunEndEncodedVector runs = (RunEndEncodedVector) vector;
      return print(runs.getValuesVector(), runs.getPhysicalIndex(i));
    }
    throw new UnsupportedOperationException("no way to print a " + vector.getClass().getName());
  }

  private static String metadata(Map pairs) {
    StringBuilder out = new StringBuilder("{");
    Iterator entries = pairs.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      out.append(out.length() == 1 ? "" : ",").append(quote((String) entry.getKey())).append(":");
      out.append(quote((String) entry.getValue()));
    }
    return out.append("}").toString();
  }

  private String all() throws Exception {
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    List columns = new ArrayList();
    List vectors = root.getFieldVectors();
    for (int k = 0; k < vectors.size(); k++) columns.add(new StringBuilder());
    while (reader.loadNextBatch()) {
      for (int k = 0; k < vectors.size(); k++) {
        StringBuilder column = (StringBuilder) columns.get(k);
        String rows = rows((ValueVector) vectors.get(k), 0, root.getRowCount());
        if (rows.length() > 2) column.append(column.length() == 0 ? "" : ",").append(rows, 1, rows.length() - 1);
      }
    }
    StringBuilder out = new StringBuilder("\"columns\":[");
    for (int k = 0; k < columns.size(); k++) out.append(k == 0 ? "[" : ",[").append(columns.get(k)).append("]");
    Schema schema = root.getSchema();
    out.append("],\"metadata\":[").append(metadata(schema.getCustomMetadata()));
    for (int k = 0; k < vectors.size(); k++) {
      out.append(",").append(metadata(((Field) schema.getFields().get(k)).getMetadata()));
    }
    return out.append("]").toString();
  }

  // What a sample that fails leaves open goes with the process.
  private static String open(Path path, BufferAllocator allocator) throws Exception {
    byte[] bytes = Files.readAllBytes(path);
    ArrowReader reader;
    if (bytes[0] == 'A') {
      ByteArrayReadableSeekableByteChannel channel = new ByteArrayReadableSeekableByteChannel(bytes);
      reader = new ArrowFileReader(channel, allocator, CommonsCompressionFactory.INSTANCE);
    } else {
      ByteArrayInputStream stream = new ByteArrayInputStream(bytes);
      reader = new ArrowStreamReader(stream, allocator, CommonsCompressionFactory.INSTANCE);
    }
    String found = new Read(reader).all();
    reader.close();
    return found;
  }

  private static String one(Path path, BufferAllocator allocator) {
    try {
      return open(path, allocator);
    } catch (Throwable error) {
      StackTraceElement[] trace = error.getStackTrace();
      return "\"error\":" + quote(error + (trace.length == 0 ? "" : " at " + trace[0]));
    }
  }

  public static void main(String[] arguments) throws Exception {
    Path folder = Paths.get(arguments[0], new String[0]);
    PrintStream out = new PrintStream(System.out, true, "UTF-8");
    BufferAllocator allocator = new RootAllocator(Long.MAX_VALUE);
    Iterator names = Files.readAllLines(folder.resolve("list.txt")).iterator();
    while (names.hasNext()) {
      String name = (String) names.next();
      out.println("{\"name\":" + quote(name) + "," + one(folder.resolve(name), allocator) + "}");
    }
  }
}
