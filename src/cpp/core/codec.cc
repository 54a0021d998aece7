#include "core/codec.h"

#include <string>

#include "replay_buffer/error.h"

#ifdef REPLAY_WITH_BLOSC2
#include <blosc2.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#endif

namespace replay_buffer {

#ifdef REPLAY_WITH_BLOSC2
namespace {

constexpr std::size_t kHeader = BLOSC2_MAX_OVERHEAD;
constexpr std::size_t kMostBytes = std::size_t{1} << 30;

void begin() {
  static std::once_flag once;
  std::call_once(once, [] { blosc2_init(); });
}

// Made when a thread first needs them. For frames of bytes no filter is best: of what was measured
// (docs/decisions/0010) shuffling their bits takes twice the room and three times the time. Wider
// elements are shuffled by bytes, as blosc2 does unless told otherwise.
class Contexts {
 public:
  Contexts() = default;
  ~Contexts() {
    for (auto& of_width : compressors_) {
      for (blosc2_context* context : of_width) free(context);
    }
    free(decompressor_);
  }
  Contexts(const Contexts&) = delete;
  Contexts& operator=(const Contexts&) = delete;

  blosc2_context* compressor(Codec codec, std::size_t width) {
    const std::size_t log = width == 8 ? 3 : width == 4 ? 2 : width == 2 ? 1 : 0;
    blosc2_context*& context = compressors_[codec == Codec::kZstd ? 1 : 0][log];
    if (context != nullptr) return context;
    begin();
    blosc2_cparams options = BLOSC2_CPARAMS_DEFAULTS;
    options.compcode = codec == Codec::kZstd ? BLOSC_ZSTD : BLOSC_LZ4;
    options.clevel = codec == Codec::kZstd ? 1 : 9;
    options.typesize = static_cast<std::int32_t>(std::size_t{1} << log);
    options.nthreads = 1;
    options.splitmode = BLOSC_NEVER_SPLIT;
    std::fill(std::begin(options.filters), std::end(options.filters), std::uint8_t{BLOSC_NOFILTER});
    if (log != 0) options.filters[BLOSC2_MAX_FILTERS - 1] = BLOSC_SHUFFLE;
    return context = blosc2_create_cctx(options);
  }

  blosc2_context* decompressor() {
    if (decompressor_ != nullptr) return decompressor_;
    begin();
    blosc2_dparams options = BLOSC2_DPARAMS_DEFAULTS;
    options.nthreads = 1;
    return decompressor_ = blosc2_create_dctx(options);
  }

 private:
  static void free(blosc2_context* context) {
    if (context != nullptr) blosc2_free_ctx(context);
  }

  blosc2_context* compressors_[2][4] = {};
  blosc2_context* decompressor_ = nullptr;
};

Contexts& contexts() {
  static thread_local Contexts mine;
  return mine;
}

// A damaged segment may hold a header that asks blosc2 for things that compress() never does: other
// codecs, filters, dictionaries, chunks that lie in files.
bool own_header(std::span<const std::byte> chunk) {
  if (chunk.size() < kHeader) return false;
  const auto at = [&](std::size_t i) { return std::to_integer<unsigned>(chunk[i]); };
  const unsigned format = at(BLOSC2_CHUNK_FLAGS) >> 5;
  if (at(BLOSC2_CHUNK_VERSION) != BLOSC2_VERSION_FORMAT_STABLE) return false;
  if (format != BLOSC_LZ4_FORMAT && format != BLOSC_ZSTD_FORMAT) return false;
  const unsigned width = at(BLOSC2_CHUNK_TYPESIZE);
  if (width != 1 && width != 2 && width != 4 && width != 8) return false;
  const auto* filters = chunk.data() + BLOSC2_CHUNK_FILTER_CODES;
  for (std::size_t i = 0; i + 1 < BLOSC2_MAX_FILTERS; ++i) {
    if (std::to_integer<unsigned>(filters[i]) != BLOSC_NOFILTER) return false;
  }
  const auto last = std::to_integer<unsigned>(filters[BLOSC2_MAX_FILTERS - 1]);
  if (last != BLOSC_NOFILTER && last != BLOSC_SHUFFLE) return false;
  // What is left of the flags says that a value is all zeros.
  const unsigned special = (at(BLOSC2_CHUNK_BLOSC2_FLAGS) >> 4) & BLOSC2_SPECIAL_MASK;
  return (at(BLOSC2_CHUNK_BLOSC2_FLAGS) & 0x0f) == 0 &&
         (special == BLOSC2_NO_SPECIAL || special == BLOSC2_SPECIAL_ZERO);
}

}  // namespace

void check_codecs(const Schema&) {}

std::size_t compress(Codec codec, std::size_t width, std::span<const std::byte> value,
                     std::byte* to) {
  if (value.size() <= kHeader || value.size() > kMostBytes) return 0;
  const auto bytes = static_cast<std::int32_t>(value.size());
  blosc2_context* context = contexts().compressor(codec, width);
  if (context == nullptr) return 0;
  const int taken = blosc2_compress_ctx(context, value.data(), bytes, to, bytes - 1);
  return taken > 0 ? static_cast<std::size_t>(taken) : 0;
}

std::size_t decompressed_bytes(std::span<const std::byte> compressed) {
  if (!own_header(compressed)) return 0;
  std::int32_t bytes = 0;
  std::memcpy(&bytes, compressed.data() + BLOSC2_CHUNK_NBYTES, sizeof(bytes));
  return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

bool decompress(std::span<const std::byte> compressed, std::span<std::byte> to) {
  if (to.empty() || decompressed_bytes(compressed) != to.size()) return false;
  std::int32_t bytes = 0;
  std::memcpy(&bytes, compressed.data() + BLOSC2_CHUNK_CBYTES, sizeof(bytes));
  if (bytes < 0 || static_cast<std::size_t>(bytes) != compressed.size()) return false;
  blosc2_context* context = contexts().decompressor();
  return context != nullptr &&
         blosc2_decompress_ctx(context, compressed.data(), bytes, to.data(),
                               static_cast<std::int32_t>(to.size())) == static_cast<int>(to.size());
}

#else

void check_codecs(const Schema& schema) {
  for (const Column& column : schema) {
    if (column.codec == Codec::kNone) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        "column '" + column.name +
            "': this replay_buffer was built without blosc2 and cannot compress; where CMake "
            "finds blosc2 (`pip install blosc2` brings it) it is built with it");
  }
}

std::size_t compress(Codec, std::size_t, std::span<const std::byte>, std::byte*) { return 0; }
std::size_t decompressed_bytes(std::span<const std::byte>) { return 0; }
bool decompress(std::span<const std::byte>, std::span<std::byte>) { return false; }

#endif

}  // namespace replay_buffer
