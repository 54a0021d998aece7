#include "segment/segment.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "segment/checksum.h"

namespace replay_buffer {
namespace {

void write_columns(const Schema& schema, ColumnEntry* entries) {
  for (std::size_t i = 0; i < schema.size(); ++i) {
    ColumnEntry& e = entries[i];
    e = ColumnEntry{};
    std::copy(schema[i].name.begin(), schema[i].name.end(), e.name);
    e.dtype = static_cast<std::uint32_t>(schema[i].dtype);
    e.dimensions = static_cast<std::uint32_t>(schema[i].shape.size());
    std::copy(schema[i].shape.begin(), schema[i].shape.end(), e.shape);
    e.limit = schema[i].limit;
  }
}

// Fills a zeroed mapping. The checksum covers what never changes: the header up to the counters,
// and the columns.
void initialise(std::byte* base, const Layout& layout, float alpha) {
  auto* header = reinterpret_cast<Header*>(base);
  auto* columns = reinterpret_cast<ColumnEntry*>(base + layout.columns_at);
  write_columns(layout.schema, columns);
  header->magic = kMagic;
  header->version = kFormatVersion;
  header->header_bytes = sizeof(Header);
  header->total_bytes = layout.total_bytes;
  header->settings = layout.settings;
  header->checksum = header_checksum(*header, columns);
  header->counters.alpha_bits.store(std::bit_cast<std::uint32_t>(alpha), std::memory_order_relaxed);
  header->counters.max_raw_bits.store(std::bit_cast<std::uint32_t>(1.0F),
                                      std::memory_order_relaxed);
}

}  // namespace

std::unique_ptr<Segment> Segment::create_heap(const BufferConfig& config, const Schema& schema) {
  Layout layout = plan_layout(make_settings(config, schema), schema);
  os::Mapping mapping = os::Mapping::reserve(layout.total_bytes);
  initialise(mapping.data(), layout, config.alpha);
  return std::unique_ptr<Segment>(new Segment(std::move(mapping), std::move(layout)));
}

}  // namespace replay_buffer
