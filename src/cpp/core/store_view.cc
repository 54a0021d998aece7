#include "replay_buffer/store_view.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/buffer.h"
#include "replay_buffer/batch.h"
#include "replay_buffer/error.h"
#include "replay_buffer/store.h"

namespace replay_buffer {

StoreView::StoreView(const Store& store, const ViewSpec& spec)
    : buffer_(store.buffer_.get()), view_(std::make_unique<View>(buffer_->ring(), spec)) {}
StoreView::~StoreView() = default;
float StoreView::beta() const { return buffer_->beta(); }
StoreView::StoreView(StoreView&& other) noexcept = default;
StoreView& StoreView::operator=(StoreView&& other) noexcept = default;

void StoreView::sample(std::size_t n, std::size_t time, std::span<const Output> outputs,
                       std::size_t* ids, float* weights, float beta) {
  detail::check_batch_size(n);
  if (!(std::isfinite(beta) && beta >= 0)) {
    throw Error(ErrorCode::kInvalidArgument, "beta must be a finite number >= 0");
  }
  Share share;
  if (buffer_->limiter().active()) share = buffer_->take_share(Want::kDraw, n);
  Draw draw(n);
  buffer_->begin(draw, *view_);
  ViewBatch batch;
  batch.rows = n;
  batch.time = time;
  batch.outputs = outputs;
  batch.ids = reinterpret_cast<std::int64_t*>(ids);  // below 2^56: the same without a sign
  const bool weighted = buffer_->layout().has_priorities();
  batch.weights = weighted ? weights : nullptr;
  if (!weighted && weights != nullptr) std::fill_n(weights, n, 1.0F);
  buffer_->finish(draw, *view_, batch, beta);
  share.keep();
}

}  // namespace replay_buffer
