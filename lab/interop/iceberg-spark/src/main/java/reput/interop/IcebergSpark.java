package reput.interop;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonGenerator;
import java.io.IOException;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.SparkPlan;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Asks Spark SQL about the tables in a catalog of Iceberg, and prints one JSON array: for each query its "rows", and "files", how many
 * data files Iceberg has Spark read for it.
 *
 * <p>Arguments: the catalog's name as name=NAME, its properties as key=value, then "query" and the queries.
 */
public final class IcebergSpark {
  private IcebergSpark() {}

  public static void main(String[] arguments) throws IOException {
    SparkSession.Builder builder =
        SparkSession.builder()
            .master("local[1]")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", false)
            .config("spark.sql.warehouse.dir", System.getProperty("java.io.tmpdir"))
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.jsonGenerator.ignoreNullFields", false)
            // Otherwise the plan that ran, with its metrics, is not the plan of the query.
            .config("spark.sql.adaptive.enabled", false);
    String catalog = "spark.sql.catalog." + arguments[0].split("=", 2)[1];
    builder.config(catalog, "org.apache.iceberg.spark.SparkCatalog");
    int next = 1;
    for (; !arguments[next].equals("query"); next++) {
      String[] pair = arguments[next].split("=", 2);
      builder.config(catalog + "." + pair[0], pair[1]);
    }
    try (SparkSession spark = builder.getOrCreate();
        JsonGenerator json = new JsonFactory().createGenerator(System.out)) {
      json.writeStartArray();
      for (next++; next < arguments.length; next++) {
        write(spark.sql(arguments[next]).toJSON(), json);
      }
      json.writeEndArray();
    }
  }

  private static void write(Dataset<String> rows, JsonGenerator json) throws IOException {
    json.writeStartObject();
    json.writeArrayFieldStart("rows");
    for (String row : rows.collectAsList()) {
      json.writeRawValue(row);
    }
    json.writeEndArray();
    long files = 0;
    for (SparkPlan leaf : CollectionConverters.asJava(rows.queryExecution().executedPlan().collectLeaves())) {
      if (leaf.metrics().contains("resultDataFiles")) {
        files += leaf.metrics().apply("resultDataFiles").value();
      }
    }
    json.writeNumberField("files", files);
    json.writeEndObject();
  }
}
