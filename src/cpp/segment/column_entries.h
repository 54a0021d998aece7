// A schema as it is stored, in segments and in checkpoints.
#pragma once

#include <span>
#include <string>

#include "replay_buffer/schema.h"
#include "segment/layout.h"

namespace replay_buffer {

// REQUIRES: as many entries as columns.
void write_columns(const Schema& schema, ColumnEntry* entries);

// Throws kCorrupt, naming `where`, for entries that make no sense by themselves; what the columns
// mean together is checked by plan_layout().
Schema read_columns(std::span<const ColumnEntry> entries, const std::string& where);

}  // namespace replay_buffer
