#include "replay_buffer/store_writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/step_writer.h"
#include "replay_buffer/error.h"
#include "replay_buffer/store.h"

namespace replay_buffer {

StoreWriter::StoreWriter(Store& store, std::size_t streams, Autoreset autoreset,
                         std::vector<bool> observed, int reward)
    : buffer_(store.buffer_.get()),
      writer_(std::make_unique<StepWriter>(*buffer_, streams, autoreset, std::move(observed),
                                           reward)) {}
StoreWriter::~StoreWriter() = default;
StoreWriter::StoreWriter(StoreWriter&& other) noexcept = default;
StoreWriter& StoreWriter::operator=(StoreWriter&& other) noexcept = default;

std::size_t StoreWriter::streams() const { return writer_->streams(); }

void StoreWriter::append(const StepBatch& batch) {
  Share share;
  if (buffer_->limiter().active()) {
    share = buffer_->take_share(Want::kAdd, std::max<std::size_t>(1, writer_->next_steps()));
  }
  writer_->append(batch);
  share.keep();
}

void StoreWriter::end(std::size_t stream) {
  if (stream >= streams()) {
    throw Error(ErrorCode::kInvalidArgument, "there is no stream " + std::to_string(stream) +
                                                 ": the writer has " + std::to_string(streams()));
  }
  writer_->end(stream);
}
void StoreWriter::close() { writer_->close(); }

}  // namespace replay_buffer
