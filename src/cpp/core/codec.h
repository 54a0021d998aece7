// Codecs: values made smaller, and themselves again. The only file that knows blosc2.
//
// A build without blosc2 has no codecs: check_codecs() then refuses columns that ask for one.
//
// Thread safety: all functions may be called by any thread at any time; each works with a context
// of its thread.
#pragma once

#include <cstddef>
#include <span>

#include "replay_buffer/schema.h"

namespace replay_buffer {

// Throws kInvalidArgument, naming the column, for a codec that this build does not have.
void check_codecs(const Schema& schema);

// Compresses a value whose elements have `width` bytes into `to`, which has room for as many bytes.
// Returns how many it takes, or 0 when that is not less. REQUIRES: a codec that this build has.
std::size_t compress(Codec codec, std::size_t width, std::span<const std::byte> value,
                     std::byte* to);

// How many bytes the value has, as its compressed form says. 0 for bytes that compress() did not
// make.
std::size_t decompressed_bytes(std::span<const std::byte> compressed);

// The value again. False, with anything in `to`, for bytes that compress() did not make of a value
// of that size. REQUIRES: nobody writes to `compressed` meanwhile.
bool decompress(std::span<const std::byte> compressed, std::span<std::byte> to);

}  // namespace replay_buffer
