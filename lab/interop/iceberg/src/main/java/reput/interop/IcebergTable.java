package reput.interop;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.FileScanTask;
import org.apache.iceberg.Snapshot;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.expressions.Expression;
import org.apache.iceberg.expressions.Expressions;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.rest.RESTCatalogServer;
import org.apache.iceberg.types.Types;

/**
 * Reads a table, or changes it, as Apache Iceberg does, and prints one JSON object; or serves a REST catalog.
 *
 * <p>Arguments: the catalog's properties as key=value, then "read FIRST TABLE" (rows from a commit log offset on) or
 * "expire TABLE" (all snapshots but the newest go). Or "serve" alone: see RESTCatalogServer for its environment.
 */
public final class IcebergTable {
  private IcebergTable() {}

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("serve")) {
      RESTCatalogServer.main(new String[0]);
      return;
    }
    Map<String, String> properties = new HashMap<>();
    int next = 0;
    for (; arguments[next].contains("="); next++) {
      String[] pair = arguments[next].split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    Catalog catalog = CatalogUtil.buildIcebergCatalog(properties.remove("name"), properties, new Configuration());
    Table table = catalog.loadTable(TableIdentifier.parse(arguments[arguments.length - 1]));
    try (JsonGenerator json = new JsonFactory().createGenerator(System.out)) {
      json.writeStartObject();
      if (arguments[next].equals("read")) {
        read(table, Long.parseLong(arguments[next + 1]), json);
      } else {
        table.expireSnapshots().expireOlderThan(System.currentTimeMillis()).retainLast(1).commit();
      }
      json.writeEndObject();
    }
  }

  private static void read(Table table, long first, JsonGenerator json) throws IOException {
    Expression filter = Expressions.greaterThanOrEqual("commit_log_offset", first);
    int files = 0;
    try (CloseableIterable<FileScanTask> tasks = table.newScan().filter(filter).planFiles()) {
      for (FileScanTask task : tasks) {
        files++;
      }
    }
    json.writeArrayFieldStart("rows");
    try (CloseableIterable<Record> rows = IcebergGenerics.read(table).where(filter).build()) {
      for (Record row : rows) {
        write(row.struct(), row, json);
      }
    }
    json.writeEndArray();
    json.writeNumberField("files", files);
    json.writeObjectFieldStart("properties");
    for (Map.Entry<String, String> property : table.properties().entrySet()) {
      json.writeStringField(property.getKey(), property.getValue());
    }
    json.writeEndObject();
    json.writeArrayFieldStart("snapshots");
    for (Snapshot snapshot : table.snapshots()) {
      json.writeString(snapshot.operation());
    }
    json.writeEndArray();
  }

  private static void write(Types.StructType type, StructLike struct, JsonGenerator json) throws IOException {
    json.writeStartObject();
    for (int field = 0; field < type.fields().size(); field++) {
      json.writeFieldName(type.fields().get(field).name());
      write(struct.get(field, Object.class), json);
    }
    json.writeEndObject();
  }

  private static void write(Object value, JsonGenerator json) throws IOException {
    if (value instanceof Record record) {
      write(record.struct(), record, json);
    } else if (value instanceof List<?> list) {
      json.writeStartArray();
      for (Object one : list) {
        write(one, json);
      }
      json.writeEndArray();
    } else if (value instanceof Map<?, ?> map) {
      json.writeStartObject();
      for (Map.Entry<?, ?> entry : map.entrySet()) {
        json.writeFieldName(entry.getKey().toString());
        write(entry.getValue(), json);
      }
      json.writeEndObject();
    } else if (value instanceof ByteBuffer bytes) {
      json.writeString(StandardCharsets.UTF_8.decode(bytes.duplicate()).toString());
    } else if (value == null || value instanceof Number || value instanceof Boolean) {
      json.writeRawValue(String.valueOf(value));
    } else {
      json.writeString(value.toString());
    }
  }
}
