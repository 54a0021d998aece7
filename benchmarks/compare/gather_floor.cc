// The memory floor: copying random records of ROW_BYTES bytes out of ROWS into one contiguous
// output, the ids drawn beforehand, from one thread. Prefetch all into the second-level cache, then
// copy each: into the first, of which few misses can be under way, takes twice to three times as
// long. A yardstick, not a bound: another order of loads can be a little faster.
//
// gather_floor ROW_BYTES ROWS BATCH...
//
// Answers like worker.py: one JSON line when the memory is filled, then one JSON line of numbers
// (microseconds a batch) for every input line "SECONDS REPEATS", until the input ends.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <new>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kHugePage = std::size_t{1} << 21;
// Lines past these are left to the hardware, which follows a long copy by itself.
constexpr std::size_t kPrefetchedBytes = 16 * kLine;
constexpr std::size_t kIds = std::size_t{1} << 22;

// Memory already touched, in huge pages where the system has them, as NumPy asks for too.
std::byte* allocate(std::size_t bytes) {
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, rounded);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 1, rounded);
  return static_cast<std::byte*>(memory);
}

struct Records {
  std::size_t stride;
  std::byte* bytes;  // for the life of the program
  std::vector<std::uint32_t> ids;

  Records(std::size_t row_bytes, std::size_t rows)
      : stride((row_bytes + 7) / 8 * 8), bytes(allocate(stride * rows)), ids(kIds) {
    std::mt19937_64 random(1);
    for (auto& id : ids) id = static_cast<std::uint32_t>(random() % rows);
  }

  void gather(std::size_t first, std::size_t batch, std::byte* out) const {
    const std::uint32_t* id = ids.data() + first;
    const std::size_t ahead = std::min(stride, kPrefetchedBytes);
    for (std::size_t i = 0; i < batch; ++i) {
      const std::byte* record = bytes + id[i] * stride;
      for (std::size_t at = 0; at < ahead; at += kLine) __builtin_prefetch(record + at, 0, 2);
      __builtin_prefetch(record + ahead - 1, 0, 2);
    }
    for (std::size_t i = 0; i < batch; ++i) {
      std::memcpy(out + i * stride, bytes + id[i] * stride, stride);
    }
  }
};

// Microseconds a batch, over at least `seconds`. `first` goes on from measurement to measurement:
// short ones would otherwise visit the same rows again, which by then are in a cache.
double measure(const Records& records, std::size_t batch, double seconds, std::size_t& first,
               std::vector<std::byte>& out) {
  using Clock = std::chrono::steady_clock;
  std::size_t batches = 0;
  const auto start = Clock::now();
  double took = 0.0;
  while (took < seconds) {
    const std::size_t burst = std::max<std::size_t>(1, 4096 / batch);
    for (std::size_t i = 0; i < burst; ++i) {
      if (first + batch > kIds) first = 0;
      records.gather(first, batch, out.data());
      first += batch;
      asm volatile("" : : "r"(out.data()) : "memory");
    }
    batches += burst;
    took = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return took / static_cast<double>(batches) * 1e6;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::cerr << "usage: gather_floor ROW_BYTES ROWS BATCH...\n";
    return 2;
  }
  const auto rows = std::strtoull(arguments[2], nullptr, 10);
  const Records records(std::strtoull(arguments[1], nullptr, 10), rows);
  std::vector<std::size_t> batches;
  for (int i = 3; i < count; ++i) batches.push_back(std::strtoull(arguments[i], nullptr, 10));
  std::vector<std::byte> out(records.stride * *std::max_element(batches.begin(), batches.end()));
  std::cout << "{\"rows\": " << rows << "}" << std::endl;
  std::size_t first = 0;

  for (std::string line; std::getline(std::cin, line);) {
    double seconds = 0.0;
    int repeats = 0;
    std::istringstream(line) >> seconds >> repeats;
    std::cout << "{";
    for (std::size_t b = 0; b < batches.size(); ++b) {
      std::cout << (b ? ", " : "") << "\"gather " << batches[b] << "\": [";
      measure(records, batches[b], seconds / 4, first, out);
      for (int i = 0; i < repeats; ++i) {
        std::cout << (i ? ", " : "") << measure(records, batches[b], seconds, first, out);
      }
      std::cout << "]";
    }
    std::cout << "}" << std::endl;
  }
}
