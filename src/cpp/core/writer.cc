#include "core/writer.h"

#include <algorithm>

namespace replay_buffer {

void Writer::append(std::size_t n, const std::byte* const* columns, const float* raws,
                    std::int64_t* ids) {
  for (std::size_t done = 0; done < n;) {
    if (!open_ || cursor_ == claim_.rows || era_ != ring_.blocks.era()) claim();
    const std::size_t run = std::min(n - done, claim_.rows - cursor_);
    write_run(run, columns, done, raws, ids);
    done += run;
  }
}

// Rows [from, from + n) of the input, all into the open block.
void Writer::write_run(std::size_t n, const std::byte* const* columns, std::size_t from,
                       const float* raws, std::int64_t* ids) {
  const std::size_t first = claim_.first_slot + cursor_;
  const std::uint64_t first_id = claim_.id(cursor_, ring_.rows.capacity());
  Fill fill = ring_.blocks.fill(claim_.block);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t before = ring_.rows.write(first + i, first_id + i, columns, from + i);
    if (!row_committed(before)) ++fill.committed;
    if (ids != nullptr) ids[from + i] = static_cast<std::int64_t>(first_id + i);
  }
  fill.written += static_cast<std::uint32_t>(n);
  cursor_ += n;
  ring_.blocks.set_fill(claim_.block, fill);
  ring_.segment->owners()[me_.owner].rows_added.fetch_add(n, std::memory_order_relaxed);
  if (ring_.priorities) {
    const float most = raws != nullptr ? 0 : ring_.priorities->max_raw();
    for (std::size_t i = 0; i < n; ++i) {
      ring_.priorities->commit(first + i, claim_.lap, raws != nullptr ? raws[from + i] : most);
    }
    ring_.priorities->refresh(first, n);
  }
}

void Writer::claim() {
  close();
  era_ = ring_.blocks.era();
  claim_ = ring_.blocks.claim(me_);
  cursor_ = 0;
  open_ = true;
}

void Writer::close() {
  if (!open_) return;
  open_ = false;
  ring_.blocks.seal(claim_);
}

}  // namespace replay_buffer
