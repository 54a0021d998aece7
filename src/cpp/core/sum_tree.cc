#include "replay_buffer/sum_tree.h"

#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tree.h"
#include "os/memory.h"
#include "replay_buffer/error.h"

namespace replay_buffer {

struct SumTree::Memory {
  explicit Memory(std::size_t leaves)
      : values(os::Mapping::reserve(TreeShape(leaves).size(0) * sizeof(float))),
        sums(os::Mapping::reserve(TreeShape(leaves).inner_nodes() * sizeof(std::uint64_t))),
        tree(reinterpret_cast<std::atomic<float>*>(values.data()),
             reinterpret_cast<std::atomic<std::uint64_t>*>(sums.data()), nullptr, leaves) {}

  void check(std::size_t leaf, float value) const {
    if (leaf >= tree.count()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "leaf " + std::to_string(leaf) + " of a tree of " + std::to_string(tree.count()));
    }
    if (!(std::isfinite(value) && value >= 0)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "a leaf must be finite and >= 0, not " + std::to_string(value));
    }
  }

  os::Mapping values;
  os::Mapping sums;
  Tree tree;
};

SumTree::SumTree(std::size_t leaves) {
  if (leaves == 0) throw Error(ErrorCode::kInvalidArgument, "a tree needs at least one leaf");
  memory_ = std::make_unique<Memory>(leaves);
}
SumTree::~SumTree() = default;
SumTree::SumTree(SumTree&& other) noexcept = default;
SumTree& SumTree::operator=(SumTree&& other) noexcept = default;

std::size_t SumTree::leaves() const { return memory_->tree.count(); }

void SumTree::set(std::size_t leaf, float value) {
  memory_->check(leaf, value);
  memory_->tree.store(leaf, value);
  memory_->tree.refresh_range(leaf, 1);
}

void SumTree::set(std::span<const std::size_t> leaves, std::span<const float> values) {
  if (leaves.size() != values.size()) {
    throw Error(ErrorCode::kInvalidArgument, "as many values as leaves are needed");
  }
  for (std::size_t i = 0; i < leaves.size(); ++i) memory_->check(leaves[i], values[i]);
  for (std::size_t i = 0; i < leaves.size(); ++i) memory_->tree.store(leaves[i], values[i]);
  const std::vector<std::uint64_t> changed(leaves.begin(), leaves.end());
  memory_->tree.refresh_many(changed);
}

float SumTree::get(std::size_t leaf) const {
  memory_->check(leaf, 0);
  return memory_->tree.leaf(leaf);
}

double SumTree::total() const { return memory_->tree.total(); }

std::size_t SumTree::find(double target) const {
  std::uint64_t leaf = 0;
  memory_->tree.find({&target, 1}, &leaf);
  return leaf == Tree::kNone ? leaves() : leaf;
}

}  // namespace replay_buffer
