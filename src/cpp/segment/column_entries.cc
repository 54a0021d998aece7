#include "segment/column_entries.h"

#include <algorithm>
#include <cstring>

#include "replay_buffer/error.h"

namespace replay_buffer {

void write_columns(const Schema& schema, ColumnEntry* entries) {
  for (std::size_t i = 0; i < schema.size(); ++i) {
    ColumnEntry& e = entries[i];
    e = ColumnEntry{};
    std::copy(schema[i].name.begin(), schema[i].name.end(), e.name);
    e.dtype = static_cast<std::uint32_t>(schema[i].dtype);
    e.dimensions = static_cast<std::uint32_t>(schema[i].shape.size());
    std::copy(schema[i].shape.begin(), schema[i].shape.end(), e.shape);
    e.limit = schema[i].limit;
    e.codec = static_cast<std::uint16_t>(schema[i].codec);
    e.padded = schema[i].padded ? 1 : 0;
    e.expected = schema[i].expected;
    e.ratio = schema[i].ratio;
  }
}

Schema read_columns(std::span<const ColumnEntry> entries, const std::string& where) {
  Schema schema;
  for (const ColumnEntry& e : entries) {
    const std::size_t length = strnlen(e.name, sizeof(e.name));
    if (length == sizeof(e.name) || e.dimensions > kMaxDimensions) {
      throw Error(ErrorCode::kCorrupt, where + ": a column's entry makes no sense");
    }
    schema.push_back({std::string(e.name, length), static_cast<DType>(e.dtype),
                      std::vector<std::uint64_t>(e.shape, e.shape + e.dimensions), e.limit,
                      static_cast<Codec>(e.codec), e.ratio == 0 ? 1 : e.ratio, e.expected,
                      e.padded != 0});
  }
  return schema;
}

}  // namespace replay_buffer
